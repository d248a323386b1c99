//! How an edited class reaches running instances without a storm: how many at a time, who is next,
//! and what the driver says of the edit as a whole.

mod review;
mod slots;

pub(crate) use review::standing;
pub use review::{ClassReview, Question, ReviewView};
pub use slots::{SlotUse, SlotView, Slots};
