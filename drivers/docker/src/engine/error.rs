//! Failures of calls to the engine.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use bollard::errors::Error;

/// A call to the engine that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineError {
    /// What was asked.
    pub call: Call,
    /// Why it failed.
    pub failure: Failure,
}

/// A call to the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// To ping the engine, or to read its version and capacity.
    Hello,
    /// To list or inspect something, or to read a file.
    Look,
    /// To pull an image. A pulled image belongs to no machine.
    Pull,
    /// To make a network.
    MakeNetwork,
    /// To make a volume.
    MakeVolume,
    /// To make a container.
    MakeContainer,
    /// To write files into a container.
    WriteFiles,
    /// To start a container.
    Start,
    /// To connect a container to a network.
    Connect,
    /// To change the limits of a container.
    Update,
    /// To run a command in a container.
    Execute,
    /// To remove something.
    Remove,
}

impl Call {
    /// Whether it changes something of a machine.
    pub fn changes(self) -> bool {
        !matches!(self, Self::Hello | Self::Look | Self::Pull)
    }

    fn text(self) -> &'static str {
        match self {
            Self::Hello => "talk to the engine",
            Self::Look => "look at what is there",
            Self::Pull => "pull the image",
            Self::MakeNetwork => "make the network",
            Self::MakeVolume => "make the volume",
            Self::MakeContainer => "make the container",
            Self::WriteFiles => "write files into the container",
            Self::Start => "start the container",
            Self::Connect => "connect the container to the network",
            Self::Update => "change the limits of the container",
            Self::Execute => "run a command in the container",
            Self::Remove => "remove what was made for the machine",
        }
    }
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// No engine listens at the socket; nothing was sent.
    Away(String),
    /// The socket is not ours to open; nothing was sent.
    Forbidden(String),
    /// The connection broke: the call may have been heard or not.
    Lost(String),
    /// No answer in time: the call may have been heard or not.
    Late,
    /// The engine refused, and did not do it.
    Refused {
        /// Its HTTP status.
        status: u16,
        /// Its words.
        message: String,
    },
    /// An answer that cannot be read.
    Garbled(String),
}

impl EngineError {
    pub(super) fn new(call: Call, error: &Error) -> Self {
        Self { call, failure: Failure::of(error) }
    }

    /// The engine may be another one when it is there again.
    pub(super) fn is_loss(&self) -> bool {
        matches!(self.failure, Failure::Away(_) | Failure::Forbidden(_) | Failure::Lost(_))
    }

    /// Whether the engine refused with this status.
    pub fn is_refusal(&self, wanted: u16) -> bool {
        matches!(&self.failure, Failure::Refused { status, .. } if *status == wanted)
    }
}

impl Failure {
    #[expect(clippy::wildcard_enum_match_arm, reason = "foreign enum; what is left cannot be read")]
    fn of(error: &Error) -> Self {
        match error {
            Error::DockerResponseServerError { status_code, message } => {
                Self::Refused { status: *status_code, message: message.trim().to_owned() }
            }
            // A failure after the beginning of the answer, e.g. with a pull.
            Error::DockerStreamError { error } => {
                Self::Refused { status: 500, message: error.trim().to_owned() }
            }
            Error::RequestTimeoutError => Self::Late,
            Error::SocketNotFoundError(path) => Self::Away(format!("there is no socket {path}")),
            Error::HyperLegacyError { err } if err.is_connect() => unreached(err),
            Error::IOError { err } => Self::Lost(err.to_string()),
            Error::HyperLegacyError { err } => Self::Lost(last_cause(err)),
            Error::HyperResponseError { err } => Self::Lost(last_cause(err)),
            _ => Self::Garbled(error.to_string()),
        }
    }
}

/// Why there is no connection.
fn unreached(error: &(dyn StdError + 'static)) -> Failure {
    let is_forbidden = |cause: &&(dyn StdError + 'static)| {
        let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        kind == Some(io::ErrorKind::PermissionDenied)
    };
    match causes(error).find(is_forbidden) {
        Some(cause) => Failure::Forbidden(cause.to_string()),
        None => Failure::Away(last_cause(error)),
    }
}

/// The error and all its sources.
fn causes<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |cause| (*cause).source())
}

/// The last cause says most.
fn last_cause(error: &(dyn StdError + 'static)) -> String {
    causes(error).last().map(ToString::to_string).unwrap_or_default()
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: ", self.call.text())?;
        match &self.failure {
            Failure::Away(why) => write!(f, "the Docker Engine is not there ({why})"),
            Failure::Forbidden(why) => {
                write!(f, "the socket of the Docker Engine is closed to this user ({why})")
            }
            Failure::Lost(why) => write!(f, "the Docker Engine went away ({why})"),
            Failure::Late => f.write_str("the Docker Engine did not answer in time"),
            Failure::Refused { message, .. } => f.write_str(message),
            Failure::Garbled(why) => {
                write!(f, "the answer of the Docker Engine cannot be read ({why})")
            }
        }
    }
}

impl StdError for EngineError {}
