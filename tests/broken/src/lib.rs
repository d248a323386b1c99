//! The fake driver with one rule of the contract broken, one for each conformance check, so that each check can be
//! seen to fail. For tests alone: no shipped binary links it.
//!
//! `driver` breaks what the verbs promise, `wire` what the session promises, `process` what the process promises.
//! Everything else works as in the fake driver.

mod driver;
mod process;
mod wire;

use std::fmt;
use std::str::FromStr;

use anyhow::Context as _;
use ostler_driver_fake::{FakeArgs, run_served};
use ostler_driver_sdk::run_adjusted;

use driver::Broken;
use wire::tapped;

/// What the driver can tell with GetMachineStatus, all of which the contract allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Reads {
    /// Everything.
    All,
    /// Finds instances by provider id; UNIMPLEMENTED without an id.
    ById,
    /// It has none.
    Nothing,
}

/// Runs the fake driver with a rule broken until it is told to end.
pub async fn run_broken(args: FakeArgs, rule: Breakage, reads: Reads) -> anyhow::Result<()> {
    process::start(rule).context("cannot listen for signals")?;
    run_served(args, async |driver, args, cutter| {
        let driver = Broken::new(driver, rule, reads);
        run_adjusted(driver, args, |options| {
            options.cutter(cutter).map_connector(|connector| tapped(connector, rule, reads))
        })
        .await
    })
    .await
}

macro_rules! breakages {
    ($($variant:ident $name:literal $effect:literal;)*) => {
        /// A rule to break. Named as the conformance check that must find it out, with a word after a colon if the check
        /// has several.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Breakage {
            $(#[doc = $effect] $variant,)*
        }

        impl Breakage {
            /// Every one.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// `group/name` of the check, or `group/name:word`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// `group/name` of the check that must find the breakage.
            pub fn check(self) -> &'static str {
                let name = self.name();
                name.split_once(':').map_or(name, |(check, _)| check)
            }

            /// The faulty behaviour of the driver.
            pub fn effect(self) -> &'static str {
                match self { $(Self::$variant => $effect,)* }
            }
        }
    };
}

breakages! {
    HelloFirst "session/hello-first" "says Hello twice";
    NoDeadline "session/no-deadline" "opens its stream with a deadline of an hour";
    HelloValid "session/hello-valid" "has an instance id that is no UUID";
    HelloStable "session/hello-stable" "has the same instance id in every process";
    KindsHonest "session/kinds-honest" "advertises GetVolumeIds and answers UNIMPLEMENTED";
    HeartbeatEcho "session/heartbeat-echo" "answers no heartbeat";
    HeartbeatUnderLoad "session/heartbeat-under-load" "answers no heartbeat while operations run";
    AcceptFast "session/accept-fast" "names no operation, and answers none before 20 s";
    CreditRespected "session/credit-respected" "refuses more than four operations at once, whatever it advertises";
    UnknownFrame "session/unknown-frame" "ends the session at a frame that it does not know";
    UnknownKind "session/unknown-kind" "answers INTERNAL to an operation that it does not know";
    TargetBusy "session/target-busy" "begins a second operation of a machine while the first one runs";
    ReconnectBackoff "session/reconnect-backoff" "dials again without any wait";
    ReconnectAfter "session/reconnect-after" "does not read CoreDraining.reconnect_after";
    RefusedForGood "session/refused-for-good" "dials again at once after a refusal for good";
    Limits "session/limits" "sends messages of 3 KiB and checkpoints of 5 KiB";
    DrainDriver "session/drain-driver" "exits at SIGTERM without finishing what runs";
    DrainCore "session/drain-core" "forgets what it holds when the core drains";
    DrainRefusesNew "session/drain-refuses-new" "accepts operations while it drains and never answers them";
    LimitsFrame "session/limits:frame" "sends all of 3,000 violations, in a frame of more than 64 KiB";
    StandbyTells "session/standby-tells-nothing" "tells of an instance while it stands by";
    StandbyQuiet "session/standby-quiet" "asks for secrets while it stands by";
    PromotedServes "session/promoted-serves" "does not notice that it is promoted";
    StaleTerm "session/stale-term" "does what a core of an old term asks";
    OutsideFencing "session/outside-fencing" "takes a core that only looks for the one that leads";
    Superseded "session/superseded" "takes another instance id when another stream took over";
    Basic "create/basic" "names another machine in the answer";
    SameIdTwice "create/same-id-twice" "makes a second instance when an operation is delivered again";
    SameKeyNewId "create/same-key-new-id" "makes a second instance for a create that is repeated";
    ParallelSameTarget "create/parallel-same-target" "makes two instances for two creates at once";
    Incompatible "create/incompatible" "takes an instance that does not fit the class";
    BadClass "create/bad-class" "answers INTERNAL without violations to a wrong class";
    BadSecret "create/bad-secret" "answers INTERNAL to refused credentials";
    MaxName "create/max-name" "cuts names after 40 characters";
    CreateCloudAway "create/cloud-away" "takes the class for wrong when the infrastructure does not answer";
    CreateCloudAwayInternal "create/cloud-away:internal" "takes an infrastructure that does not answer for a defect of its own";
    CreateCloudAwayQuota "create/cloud-away:quota" "takes an infrastructure that does not answer for one that is full";
    CreateCloudAwayDay "create/cloud-away:day" "wants to be asked again a day after an outage";
    PrefixName "create/prefix-name" "finds an instance whose name begins with that of the machine";
    Zone "create/zone" "makes instances without a look at the zone";
    TagsAtomic "create/tags-atomic" "tags an instance in the next call after the one that makes it";
    KilledEarly "create/killed-early" "tags an instance only when it is done";
    BesideOthers "create/beside-others" "works on one operation at a time";
    Cancel "create/cancel" "says that a cancelled create left nothing, whatever it left";
    Timeout "create/timeout" "says nothing when the time is over";
    UserDataIntact "create/user-data-intact" "changes user data on the way";
    RestoredProviderId "create/restored-provider-id" "does not look for the id that a restored machine has";
    RequestTags "create/request-tags" "leaves out tags of the request";
    RequestTagsAscii "create/request-tags:ascii" "puts tags on an instance without what is not ASCII";
    AdoptByName "create/adopt-by-name" "adopts by name and leaves the instance as it is";
    AdoptOnlyUnclaimed "create/adopt-only-unclaimed" "takes whatever has the name of the machine";
    CreatePreviousById "create/previous-by-id" "adopts an instance of a previous cluster id and leaves its tags as they are";
    CreatePreviousByUid "create/previous-by-uid" "makes a second instance beside one of a previous cluster id";
    CreatePreviousByName "create/previous-by-name" "takes an instance of a previous cluster id that has the name of the machine";
    StatusAbsent "status/absent" "answers an empty instance where there is none";
    Reasons "status/reasons" "gives the reason NOT_OURS with the code NOT_FOUND";
    ReasonsUnknown "status/reasons:unknown" "gives a type of reason that the contract does not have";
    ReasonsWord "status/reasons:word" "gives a reason whose word is not that of its type";
    SameMessage "status/same-message" "says in each error when it was";
    StatusErrorNotAbsent "status/error-not-absent" "says NOT_FOUND when the infrastructure refuses the credentials";
    StatusCloudAway "status/cloud-away" "says NOT_FOUND when the infrastructure does not answer";
    StatusByUid "status/by-uid" "finds nothing without a provider id";
    StatusAfterCreate "status/after-create" "answers another id than the create did";
    StatusRemoved "status/removed" "tells what it made, and does not look whether that is there";
    StatusPure "status/pure" "initializes and tags the instance that it reads";
    StatusWrongProviderId "status/wrong-provider-id" "takes whatever has the provider id";
    StatusNotOurs "status/not-ours" "says that an instance of others is absent";
    StatusNotOursCluster "status/not-ours-cluster" "does not say of which cluster an instance of others is";
    StatusPreviousByName "status/previous-by-name" "says that an instance of a previous cluster id and another UID is absent";
    StatusTellsTags "status/tells-tags" "tells the UID that it is asked for";
    InitializeFlow "initialize/flow" "says initialized and does nothing";
    InitializeTwice "initialize/twice" "fails when it is done already";
    InitializeOnce "initialize/once" "does it all again each time";
    InitializeCloudAway "initialize/cloud-away" "says initialized when the infrastructure does not answer";
    InitializeBadSecret "initialize/bad-secret" "says initialized when the infrastructure refuses the credentials";
    InitializeAbsent "initialize/absent" "initializes an instance that is not there";
    InitializeNotOurs "initialize/not-ours" "says that an instance of others is absent";
    DeleteSaysWhich "delete/says-which" "says deleted where nothing was";
    DeleteNotOurs "delete/not-ours" "says gone where an instance of others is";
    DeleteBasic "delete/basic" "says gone and deletes nothing";
    DeleteBasicKept "delete/basic:kept" "says gone, and hides the instance that runs on";
    DeleteTwice "delete/twice" "fails for an instance that it deleted already";
    DeleteErrorNotGone "delete/error-not-gone" "says gone when the infrastructure refuses the credentials";
    DeleteCloudAway "delete/cloud-away" "says gone when the infrastructure does not answer";
    DeleteUnknown "delete/unknown" "fails for an instance that was never there";
    DeleteByUid "delete/by-uid" "deletes nothing without a provider id";
    DeleteDependents "delete/dependents" "leaves the disk behind";
    DeletePrevious "delete/previous" "says gone where an instance of a previous cluster id is";
    DeletePreviousByName "delete/previous-by-name" "deletes an instance of a previous cluster id that has the name of the machine";
    DeleteForeignCluster "delete/foreign-cluster" "deletes by provider id alone";
    ListExact "list/exact" "leaves one instance out";
    ListExactByZone "list/exact:by-zone" "says that ids are compared by their last part, which is the same for all";
    ListAtOnce "list/at-once" "lists an instance a second late";
    ListParts "list/parts" "lists the disk of an instance that is there as one that belongs to none";
    ListPages "list/pages" "loses the second page";
    ListErrorNotEmpty "list/error-not-empty" "answers an empty list when it may not look";
    ListCloudAway "list/cloud-away" "answers an empty list when the infrastructure does not answer";
    ListOtherCluster "list/other-cluster" "lists the instances of all clusters";
    ListUntagged "list/untagged" "leaves out instances that machine-controller-manager made";
    ListPreviousCluster "list/previous-cluster" "does not say which instances have a previous cluster id";
    UpdateHot "update/hot" "says applied and changes nothing";
    UpdateNotOurs "update/not-ours" "says that an instance of others is absent";
    UpdateCloudAway "update/cloud-away" "says applied when the infrastructure does not answer";
    UpdateBadSecret "update/bad-secret" "says applied when the infrastructure refuses the credentials";
    UpdateIdempotent "update/idempotent" "fails when there is nothing to change";
    UpdatePartialHeals "update/partial-heals" "believes the spec that is said to be applied, and does not look";
    UpdateForeignTagsKept "update/foreign-tags-kept" "removes tags of others";
    UpdateParts "update/parts" "changes the tags of the virtual machine alone";
    UpdateForeignTagsOfParts "update/foreign-tags-of-parts" "removes tags of others from network and disk";
    UpdateInPlace "update/in-place" "refuses what an update in place has changed already";
    UpdateRefusedWhole "update/refused-whole" "applies the tags of a change that it refuses";
    VolumeIds "volumes/ids" "leaves out volumes that are not its own";
    VolumesCloudAway "volumes/cloud-away" "knows no volume when the infrastructure does not answer";
    VolumesBadSecret "volumes/bad-secret" "knows no volume when the infrastructure refuses the credentials";
    ValidateCloudAway "validate/cloud-away" "finds a violation when the infrastructure does not answer";
    ValidateBadSecret "validate/bad-secret" "finds a violation when the infrastructure refuses the credentials";
    ValidateClassifies "validate/classifies" "finds every class good and every change hot";
    ValidateFixedDigest "validate/fixed-digest" "takes all of the spec into the digest of what is fixed";
    ValidatePure "validate/pure" "makes an instance to see whether the class works";
    PoolCreate "pool/create" "brings a group that it finds to the size that is asked for";
    PoolStatus "pool/status" "tells the same instance_id of all instances";
    PoolStatusAbsent "pool/status-absent" "answers an empty group where there is none";
    PoolCloudAway "pool/cloud-away" "says NOT_FOUND when the infrastructure does not answer";
    PoolCloudAwayCreate "pool/cloud-away:create" "takes the class for wrong when the infrastructure does not answer";
    PoolCloudAwayUpdate "pool/cloud-away:update" "says that the group has the size when the infrastructure does not answer";
    PoolCloudAwayDelete "pool/cloud-away:delete" "says that there was no group when the infrastructure does not answer";
    PoolCloudAwayList "pool/cloud-away:list" "lists no group when the infrastructure does not answer";
    PoolCloudAwayPart "pool/cloud-away:part" "tells a group without its instances when the infrastructure does not answer";
    PoolCloudAwayDeletes "pool/cloud-away:machines" "says that the named instances are gone when the infrastructure does not answer";
    PoolCloudAwayUpdates "pool/cloud-away:machine" "says that the instance has the model when the infrastructure does not answer";
    PoolCloudAwayLater "pool/cloud-away:later" "does what was asked in the outage once the infrastructure answers again";
    PoolBadSecret "pool/bad-secret" "says NOT_FOUND when the infrastructure refuses the credentials";
    PoolBadSecretDelete "pool/bad-secret:delete" "says that there was no group when the infrastructure refuses the credentials";
    PoolOfNoMachine "pool/of-no-machine" "lists instances of groups as those of machines";
    PoolOtherCluster "pool/other-cluster" "deletes a group by provider id alone";
    PoolNotOurs "pool/not-ours" "changes the size of a group by its id alone";
    PoolNotOursDeletes "pool/not-ours:delete" "deletes instances of whatever group";
    PoolNotOursUpdates "pool/not-ours:update" "says that the instance of another group has the model";
    PoolBadClass "pool/bad-class" "takes a class that is wrong for a defect of its own";
    PoolMaxName "pool/max-name" "cuts the name of a pool";
    PoolKilledEarly "pool/killed-early" "makes another group beside one that its process did not make";
    PoolParallel "pool/parallel" "makes two groups for two creates at once";
    PoolGone "pool/gone" "makes a group that is gone once its size is to change";
    PoolPrevious "pool/previous" "does not say which groups have a previous cluster id";
    PoolPreviousTags "pool/previous:tags" "adopts a group of a previous cluster id and leaves its tags as they are";
    PoolPreviousByName "pool/previous-by-name" "says that a group of a previous cluster id and another UID is absent";
    PoolPreviousDelete "pool/previous-delete" "says that there was none where a group of a previous cluster id is";
    PoolTags "pool/tags" "tags the group and not its instances";
    PoolZones "pool/zones" "makes instances where the class says, whatever the model says";
    PoolPages "pool/pages" "loses the second page of the instances";
    PoolListPages "pool/list-pages" "loses the second page of the groups";
    PoolLostInstance "pool/lost-instance" "cannot read a group of which one instance is gone";
    PoolLostInstanceMute "pool/lost-instance:mute" "does not say what is wrong with an instance that failed";
    PoolLostInstanceShown "pool/lost-instance:shown" "tells each instance that it saw before as one that is there";
    PoolSize "pool/size" "sets a size whatever the group has";
    PoolLowerTakesNone "pool/lower-takes-none" "lets a lower size take the newest instances";
    PoolModel "pool/model" "calls instances that are there those of the new model";
    PoolUserData "pool/user-data" "gives a group that has the model nothing more of it";
    PoolDeleteNamed "pool/delete-named" "deletes the oldest instance in place of the named one";
    PoolDeleteTwice "pool/delete-twice" "lowers the size by one at each repetition";
    PoolDeleteReplaced "pool/delete-replaced" "lowers the size where it is to stay";
    PoolDeleteStale "pool/delete-stale" "lowers whatever size the group has";
    PoolDeleteStrange "pool/delete-strange" "deletes by the id of the instance alone";
    PoolDeletePartial "pool/delete-partial" "lowers the size for an instance that it did not delete, too";
    PoolDeletePartialAll "pool/delete-partial:all" "fails as a whole because one of several cannot be deleted";
    PoolDeletePartialWhy "pool/delete-partial:why" "does not say why an instance was not deleted";
    PoolUpdateUndrained "pool/update-undrained" "makes an instance anew whose Node is not drained";
    PoolUpdateInstance "pool/update-instance" "says that the instance has the model, and changes nothing";
    PoolUpdateTags "pool/update-tags" "says that the instance has the model, and changes none of its tags";
    PoolUpdateTagsWiped "pool/update-tags:wiped" "takes the tags of others from an instance that it updates";
    PoolDelete "pool/delete" "says deleted and deletes nothing";
    EventsGone "events/gone" "has events and tells none";
    EventsNamed "events/named" "calls all instances gone when one is";
    CutMidCreate "resilience/cut-mid-create" "does not say what it holds after a cut";
    CoreRestart "resilience/core-restart" "keeps whatever the verdicts say";
    CrashMidCreate "resilience/crash-mid-create" "does not know the instances of the process before it";
    HalfOpen "resilience/half-open" "never notices that the core is gone";
    CoreNotReading "resilience/core-not-reading" "drops results while eight are not acknowledged";
    AckLoss "resilience/ack-loss" "sends an unacknowledged result once more and then no more";
    ResultResent "resilience/result-resent" "sends results only in the session of their operation";
    PagesResent "resilience/pages-resent" "sends a list that was not acknowledged again without its pages";
    DuplicateFrames "resilience/duplicate-frames" "ends the session at a frame that it saw before";
    SecretScope "secret/scope" "asks for secrets without a live operation";
    SecretNotInOutput "secret/not-in-output" "logs credentials and user data";
    SecretNotInTags "secret/not-in-tags" "puts user data into a tag";
    SecretRefresh "secret/refresh" "keeps the first secret for ever";
    ClassCache "secret/class-cache" "fetches the class for every operation";
    StaleRevision "secret/stale-revision" "answers INTERNAL when a revision is gone";
}

/// No check has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not the name of a breakage: `--break help` lists them")]
pub struct NoBreakage {
    name: String,
}

impl FromStr for Breakage {
    type Err = NoBreakage;

    fn from_str(name: &str) -> Result<Self, NoBreakage> {
        let found = Self::ALL.iter().copied().find(|breakage| breakage.name() == name);
        found.ok_or_else(|| NoBreakage { name: name.to_owned() })
    }
}

impl fmt::Display for Breakage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What `--break` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// List the breakages and end.
    Help,
    /// Break this rule.
    Rule(Breakage),
}

impl FromStr for Break {
    type Err = NoBreakage;

    fn from_str(text: &str) -> Result<Self, NoBreakage> {
        if text == "help" { Ok(Self::Help) } else { text.parse().map(Self::Rule) }
    }
}

/// One line a breakage.
pub fn listing() -> String {
    let line = |breakage: &Breakage| format!("{:32} {}\n", breakage.name(), breakage.effect());
    Breakage::ALL.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_breakage_is_found_by_its_name_and_no_two_share_one() {
        let names: BTreeSet<_> = Breakage::ALL.iter().map(|breakage| breakage.name()).collect();
        assert_eq!(names.len(), Breakage::ALL.len());
        for breakage in Breakage::ALL {
            assert_eq!(breakage.name().parse(), Ok(*breakage));
            assert!(listing().contains(breakage.name()));
        }
        let error = "create/basics".parse::<Break>().unwrap_err();
        assert!(error.to_string().contains("create/basics"), "{error}");
    }
}
