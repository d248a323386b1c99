//! The values of [`Failure::reason`](super::Failure::reason) that the core acts on, or gives
//! itself.

use std::fmt;

macro_rules! reasons {
    ($($(#[$meta:meta])* $variant:ident = $word:literal,)+) => {
        /// A stable word for why an operation failed. A driver may use any other word as well: it
        /// is for people and metrics.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reason {
            $($(#[$meta])* $variant,)+
        }

        impl Reason {
            /// The word on the wire.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// Reads a word; `None` for a word without use in the core.
            pub fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

reasons! {
    /// With FAILED_PRECONDITION from an update: the change cannot reach a running instance.
    NotHotUpdatable = "NOT_HOT_UPDATABLE",
    /// With FAILED_PRECONDITION: there is an instance, and it is not this machine's.
    NotOurs = "NOT_OURS",
    /// With RESOURCE_EXHAUSTED or UNAVAILABLE: the infrastructure limits the rate of calls; all
    /// creates of the provider pause.
    Throttled = "THROTTLED",
    /// With UNAVAILABLE from a driver that drains: it did not begin the operation, another driver is
    /// to do it.
    DriverDraining = "DRIVER_DRAINING",
    /// Made of [`Self::NotOurs`]: the machine's former instance, under another cluster id.
    CoreClusterIdChanged = "CORE_CLUSTER_ID_CHANGED",
    /// No ready driver is connected.
    CoreNoSession = "CORE_NO_SESSION",
    /// The session ended while the operation was in flight.
    CoreSessionLost = "CORE_SESSION_LOST",
    /// The driver did not answer in time, or the operation waited too long for credit.
    CoreTimeout = "CORE_TIMEOUT",
    /// The driver did not accept the operation in time.
    CoreAcceptTimeout = "CORE_ACCEPT_TIMEOUT",
    /// The driver accepted the operation and does not know it any more.
    CoreOperationLost = "CORE_OPERATION_LOST",
    /// Too many operations wait for the provider.
    CoreQueueFull = "CORE_QUEUE_FULL",
    /// The operation is too large.
    CoreFrameTooLarge = "CORE_FRAME_TOO_LARGE",
    /// The target has another operation.
    CoreTargetBusy = "CORE_TARGET_BUSY",
    /// The driver has no such verb.
    CoreKindUnsupported = "CORE_KIND_UNSUPPORTED",
    /// The core only looks, and changes nothing.
    CoreLooksOnly = "CORE_LOOKS_ONLY",
    /// Cancelled before it was sent.
    CoreCanceled = "CORE_CANCELED",
    /// The driver's answer does not fit the request.
    CoreWrongResult = "CORE_WRONG_RESULT",
    /// With NOT_FOUND: the new instance is gone again, and was of no use yet.
    CoreLost = "CORE_LOST",
    /// A list was longer than the core holds.
    CoreListTooLong = "CORE_LIST_TOO_LONG",
    /// The answer came from a driver of another provider than the instance's, or else the class's.
    ForeignProvider = "FOREIGN_PROVIDER",
    /// The driver gave a reason that only the core may give.
    Reserved = "RESERVED_REASON",
}

impl Reason {
    /// The values of drivers that the core acts on. Manual and contract list the same values.
    pub const OF_DRIVERS: [Self; 4] =
        [Self::NotHotUpdatable, Self::NotOurs, Self::Throttled, Self::DriverDraining];
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl From<Reason> for String {
    fn from(reason: Reason) -> Self {
        reason.word().to_owned()
    }
}

impl PartialEq<Reason> for String {
    fn eq(&self, reason: &Reason) -> bool {
        self == reason.word()
    }
}

impl PartialEq<Reason> for str {
    fn eq(&self, reason: &Reason) -> bool {
        self == reason.word()
    }
}
