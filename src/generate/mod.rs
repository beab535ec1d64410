//! One answer, from prompt tokens to text: a turn is a state machine, a driver evaluates what turns want.
//!
//! Nothing here prints, opens a file, or sees a command line. Text leaves through a [`Sink`].

mod align;
mod cached;
mod constraint;
mod detokenize;
pub mod draft;
mod driver;
mod kv;
mod logprobs;
mod many;
mod pace;
mod prompt;
mod read_ahead;
mod session;
mod speaker;
mod stats;
mod stop;
mod text;
mod turn;

pub use align::{align, vocabulary_digest};
pub use cached::{Cached, Content, End, Restored, Saved, Stays};
pub use driver::{Ended, Lane, drive};
pub use logprobs::TokenLogprob;
pub use many::{Next, Request, Requests, Share, answer_many};
pub use prompt::Encoder;
pub use session::{Keep, Limits, Session};
pub use speaker::{Fitted, Speaker, TemplateFrom};
pub use stats::{Answer, Finish, Timings};
pub use text::{Part, Reasoning, Sink, SinkClosed};
pub use turn::{ThoughtLimit, Turn, TurnSettings};
