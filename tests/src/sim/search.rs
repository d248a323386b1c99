//! What every infrastructure does to searches and answers: it finds by tags only later what it made, and now and then
//! nobody hears how a call ended.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use ostler_driver_sdk::DriverError;

use super::dice::Dice;
use super::weather::Sky;

/// So many of a hundred mutations end without an answer that says what they did.
const UNTOLD: u64 = 3;

/// The searches of a world. Other parts of a plan use random numbers of their own.
#[derive(Clone, Debug)]
pub struct Search {
    lag: Duration,
    dice: Dice,
}

impl Search {
    /// The search of a seed.
    pub fn of(seed: u64) -> Self {
        let dice = Dice::new(seed.rotate_left(41));
        Self { lag: Duration::from_secs(dice.pick(&[0, 2, 10, 20, 40])), dice }
    }

    /// For how long a search may not show what was made.
    pub const fn lag(&self) -> Duration {
        self.lag
    }

    /// Whether a search does not find yet what was made at that time. Only searches hide an instance: reads by id find
    /// it.
    pub fn hides(&self, made: Timestamp, now: Timestamp) -> bool {
        SignedDuration::try_from(self.lag).is_ok_and(|lag| now.duration_since(made) < lag)
    }

    /// How a mutation ended that is done, as the driver says it: it may not know, or know that there is something.
    ///
    /// # Errors
    /// The answer is lost.
    pub fn told<T>(&self, sky: &Sky, done: T) -> Result<T, DriverError> {
        if sky.is_calm() || !self.dice.percent(UNTOLD) {
            return Ok(done);
        }
        let lost = DriverError::internal("the answer of the cloud is lost");
        Err(if self.dice.percent(50) { lost.partial() } else { lost })
    }
}
