//! Talks that outgrow the context they began with, and then every context.

use std::sync::Arc;

use qchat::chat::{Conversation, Message, Role};
use qchat::engine::Model;
use qchat::generate::{Fitted, Limits, Speaker};
use qchat::interrupt::Interrupt;

use super::engine::load;
use super::turns::{Text, settings};
use crate::common::Sandbox;
use crate::common::tiny::Tiny;

fn speaker(model: &Arc<dyn Model>, first: usize) -> Speaker {
    let limits = Limits { n_ctx: None, first, threads: 1 };
    Speaker::new(Arc::clone(model), None, limits, Interrupt::default()).unwrap()
}

#[test]
fn a_talk_of_30_000_tokens_grows_and_then_drops_a_third() {
    let sandbox = Sandbox::new();
    let model = load(&sandbox, &Tiny { says: |id| (32..127).contains(&id), layers: 1, heads: 1, ..Tiny::default() });
    let mut own = speaker(&model, 4096);
    let mut talk = Conversation::new(Some("Be brief.".into()));
    let (mut sizes, mut read, mut longest) = (Vec::new(), 0, 0);
    for number in 0.. {
        talk.push(Message::new(Role::User, format!("{number:04} {}", "and so it went on. ".repeat(60))));
        let before = talk.messages().len();
        let Fitted { prompt, dropped, .. } = own.fit(&mut talk).unwrap();
        let len = prompt.len();
        let ask = || settings(0.0, Some(24));
        let answer = own.answer(prompt.clone(), ask(), &mut Text::default()).unwrap();
        read += len - answer.cached_tokens;
        sizes.push(own.session().n_ctx());
        if dropped > 0 {
            // A third of the context at once, whole exchanges, and the system prompt stays.
            assert_eq!((before - talk.messages().len(), dropped % 2), (dropped, 0));
            assert!(len <= 32768 * 2 / 3 && len > 32768 / 2, "{len}");
            assert_eq!(talk.system.as_deref(), Some("Be brief."));
            assert!(talk.messages()[0].content.starts_with(&format!("{:04} ", dropped / 2)));
            // Whoever had read only this would say the same.
            let fresh = speaker(&model, 0).answer(prompt, ask(), &mut Text::default()).unwrap();
            assert_eq!((fresh.content, fresh.cached_tokens), (answer.content, 0));
            break;
        }
        longest = len;
        // All but the new message was read before.
        assert!(len - answer.cached_tokens < 1300, "{len}: {}", answer.cached_tokens);
        if number == 12 {
            // Grown twice by now.
            let fresh = speaker(&model, 0).answer(prompt, ask(), &mut Text::default()).unwrap();
            assert_eq!(fresh.content, answer.content);
        }
        talk.push(Message::new(Role::Assistant, answer.content));
    }
    sizes.dedup();
    assert_eq!(sizes, [4096, 8192, 16384, 32768]);
    assert!(longest > 30_000 && read > 45_000, "{longest} {read}");
}
