//! Figures: what a machine, a model and a setting do, side by side and with how sure that is.
//!
//! Nothing here prints or knows a command line. Arms are compared within one run, interleaved; a ratio comes with its
//! interval; quality is looked at beside speed.

mod agreement;
mod arm;
mod axis;
mod check;
pub mod doctor;
mod drafting;
mod figures;
pub mod html;
mod likelihood;
pub mod machine;
pub mod quality;
mod report;
mod run;
pub mod speed;
pub mod stats;
mod table;
pub mod tune;
pub mod workload;

pub use agreement::with_first;
pub use arm::{Arm, Draft, InMemory, Setting, Shared, load};
pub use axis::Axis;
pub use check::Checks;
pub use drafting::Drafting;
pub use figures::of_arms;
pub use likelihood::{check_text, of_arms as likelihoods};
pub use report::*;
pub use run::{Plan, run, warm_up};
pub use table::{Style, tables};

/// Each value once, where it comes first.
pub fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut list = Vec::new();
    for value in values {
        if !list.contains(&value) {
            list.push(value);
        }
    }
    list
}
