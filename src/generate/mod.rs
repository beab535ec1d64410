//! One answer, from prompt tokens to text: a turn is a state machine, a driver evaluates what turns want.
//!
//! Nothing here prints, opens a file, or sees a command line. Text leaves through a [`Sink`].

mod detokenize;
pub mod draft;
mod driver;
mod kv;
mod prompt;
mod session;
mod speaker;
mod stats;
mod stop;
mod text;
mod turn;

pub use driver::{Ended, Lane, drive};
pub use prompt::Encoder;
pub use session::{Limits, Session};
pub use speaker::{Fitted, Speaker, TemplateFrom};
pub use stats::{Answer, Finish, Timings};
pub use text::{Part, Reasoning, Sink, SinkClosed};
pub use turn::{Turn, TurnSettings};
