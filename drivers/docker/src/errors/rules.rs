//! Phrases of engines and registries, and their meaning.

use ostler_driver_sdk::Code;

/// Words of the engine that have a meaning of their own.
pub(super) struct Rule {
    /// A phrase of the engine's error, in lower case.
    pub(super) says: &'static str,
    pub(super) code: Code,
    pub(super) reason: &'static str,
    /// Where in the provider spec it comes from.
    pub(super) field: &'static str,
    /// What to do.
    pub(super) hint: &'static str,
}

const fn rule(
    says: &'static str,
    (code, reason): (Code, &'static str),
    field: &'static str,
    hint: &'static str,
) -> Rule {
    Rule { says, code, reason, field, hint }
}

/// The first that fits is taken.
pub(super) const RULES: [Rule; 33] = [
    rule(
        "dial tcp",
        (Code::Unavailable, "REGISTRY_AWAY"),
        "",
        "load the image on the host of the engine, or let the engine reach the registry",
    ),
    rule(
        "no such host",
        (Code::Unavailable, "REGISTRY_AWAY"),
        "",
        "load the image on the host of the engine, or let the engine reach the registry",
    ),
    rule(
        "handshake timeout",
        (Code::Unavailable, "REGISTRY_AWAY"),
        "",
        "load the image on the host of the engine, or let the engine reach the registry",
    ),
    rule(
        "request canceled",
        (Code::Unavailable, "REGISTRY_AWAY"),
        "",
        "load the image on the host of the engine, or let the engine reach the registry",
    ),
    rule(
        "toomanyrequests",
        (Code::ResourceExhausted, "THROTTLED"),
        "",
        "load the image on the host of the engine, or log in at the registry",
    ),
    rule(
        "no such image",
        (Code::InvalidArgument, "IMAGE_UNKNOWN"),
        "image",
        "build or load the image on the host of the engine, or name another one",
    ),
    rule(
        "pull access denied",
        (Code::InvalidArgument, "IMAGE_UNKNOWN"),
        "image",
        "name an image that the registry has, or load it on the host of the engine",
    ),
    rule(
        "manifest unknown",
        (Code::InvalidArgument, "IMAGE_UNKNOWN"),
        "image",
        "name an image that the registry has",
    ),
    rule(
        "not found: manifest",
        (Code::InvalidArgument, "IMAGE_UNKNOWN"),
        "image",
        "name an image that the registry has",
    ),
    rule(
        "invalid reference format",
        (Code::InvalidArgument, "IMAGE_NAME"),
        "image",
        "write the image as NAME:TAG, in lower case",
    ),
    rule(
        "no command specified",
        (Code::InvalidArgument, "COMMAND_MISSING"),
        "command",
        "the image says no command: name one",
    ),
    rule(
        "executable file not found",
        (Code::InvalidArgument, "COMMAND_NOT_FOUND"),
        "command",
        "name a program that the image has",
    ),
    rule(
        "no such file or directory: unknown",
        (Code::InvalidArgument, "COMMAND_NOT_FOUND"),
        "command",
        "name a program that the image has",
    ),
    rule(
        "exec format error",
        (Code::InvalidArgument, "COMMAND_FORMAT"),
        "command",
        "name a program of the architecture of the host; a script begins with #!",
    ),
    rule(
        "minimum memory limit",
        (Code::InvalidArgument, "LIMIT_TOO_LOW"),
        "memory",
        "set 6Mi or more",
    ),
    rule(
        "range of cpus is from",
        (Code::InvalidArgument, "CPU_LIMIT"),
        "cpu",
        "set no more CPUs than the host of the engine has",
    ),
    rule(
        "file name too long",
        (Code::InvalidArgument, "NAME_TOO_LONG"),
        "",
        "shorten the names of the class",
    ),
    rule(
        "invalid hostname",
        (Code::InvalidArgument, "HOST_NAME"),
        "",
        "name the machine in lower-case letters, digits, `-` and `.`",
    ),
    rule(
        "port is already allocated",
        (Code::FailedPrecondition, "PORT_TAKEN"),
        "ports",
        "free the port of the host, or leave hostPort out",
    ),
    rule(
        "address already in use",
        (Code::FailedPrecondition, "PORT_TAKEN"),
        "ports",
        "free the port of the host, or leave hostPort out",
    ),
    rule(
        "no space left on device",
        (Code::ResourceExhausted, "DISK_FULL"),
        "",
        "free space on the disk of the engine",
    ),
    rule(
        "disk quota exceeded",
        (Code::ResourceExhausted, "DISK_FULL"),
        "",
        "free space on the disk of the engine",
    ),
    rule(
        "non-overlapping ipv4 address pool",
        (Code::ResourceExhausted, "ADDRESSES_USED_UP"),
        "networks",
        "remove networks, or give the engine more with default-address-pools",
    ),
    rule(
        "no available ipv4 addresses",
        (Code::ResourceExhausted, "ADDRESSES_USED_UP"),
        "networks",
        "remove containers of the network, or make a larger one",
    ),
    rule(
        "cannot allocate memory",
        (Code::ResourceExhausted, "MEMORY_USED_UP"),
        "",
        "free memory on the host of the engine",
    ),
    rule(
        "device or resource busy",
        (Code::FailedPrecondition, "MEMORY_IN_USE"),
        "memory",
        "the machine uses more than the new limit: set a higher one",
    ),
    rule(
        "has active endpoints",
        (Code::FailedPrecondition, "NETWORK_IN_USE"),
        "",
        "take the containers of others off the network of the machine",
    ),
    rule(
        "volume is in use",
        (Code::FailedPrecondition, "VOLUME_IN_USE"),
        "",
        "take the volume of the machine off the containers of others",
    ),
    rule(
        ": already exists",
        (Code::Aborted, "START_STUCK"),
        "",
        "nothing: the container is made anew",
    ),
    // The engine's own word for the same, when its second attempt meets the task that the killed engine started.
    rule(
        "id already in use",
        (Code::Aborted, "START_STUCK"),
        "",
        "nothing: the container is made anew",
    ),
    rule(
        "is already in progress",
        (Code::Aborted, "REMOVAL_IN_PROGRESS"),
        "",
        "nothing: it is tried again",
    ),
    rule(
        "is already in use by container",
        (Code::AlreadyExists, "NAME_TAKEN"),
        "",
        "remove or rename that container: it is not of this machine",
    ),
    rule(
        "no such container",
        (Code::NotFound, "NOT_FOUND"),
        "",
        "nothing: it was removed by another client of the engine",
    ),
];

/// Registries have many words for their own trouble, and few for an image that is not there.
pub(super) fn pull_of(words: &str) -> &'static Rule {
    const UNKNOWN: Rule = rule(
        "",
        (Code::InvalidArgument, "IMAGE_UNKNOWN"),
        "image",
        "name an image that the registry has",
    );
    const FAILED: Rule =
        rule("", (Code::Unavailable, "PULL_FAILED"), "", "nothing: it is tried again");
    let unknown = ["not found", "does not exist"].iter().any(|says| words.contains(says));
    if unknown { &UNKNOWN } else { &FAILED }
}

/// `network NAME not found`, where the name may be anything.
pub(super) fn network_of(words: &str) -> Option<&'static Rule> {
    const NETWORK: Rule = rule(
        "",
        (Code::InvalidArgument, "NETWORK_UNKNOWN"),
        "networks",
        "make the network, or set own: true to have one made for every machine",
    );
    (words.contains("network") && words.ends_with("not found")).then_some(&NETWORK)
}
