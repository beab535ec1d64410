//! Token ids of rendered conversations against `scripts/reference_ids.py` (Python's jinja2, arithmetic ids), through a model
//! file whose vocabulary is bytes and the template's special tokens.

use qchat::chat::named;
use qchat::engine::llama::LoadSettings;
use qchat::generate::{Limits, Speaker};
use qchat::interrupt::Interrupt;
use serde::Deserialize;

use crate::common::Sandbox;
use crate::common::tiny::{Kind, Tiny};
use crate::talks::Talk;

#[derive(Deserialize)]
struct Case {
    template: String,
    specials: Vec<SpecialToken>,
    bos: Option<i32>,
    eos: Option<i32>,
    add_bos: bool,
    conversations: Vec<Talk>,
}

#[derive(Deserialize)]
struct SpecialToken {
    text: String,
    kind: String,
}

#[test]
fn prompts_have_the_ids_of_the_reference() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("../data/reference_ids.json")).unwrap();
    let sandbox = Sandbox::new();
    let mut compared = 0;
    for case in &cases {
        let index = |id: Option<i32>| id.map(|id| (id - 256) as usize);
        let kind = |kind: &str| {
            if kind == "control" { Kind::Control } else { Kind::UserDefined }
        };
        let tiny = Tiny {
            template: named(&case.template).map(str::to_owned),
            specials: case.specials.iter().map(|s| (s.text.clone(), kind(&s.kind))).collect(),
            bos: index(case.bos),
            eos: index(case.eos),
            add_bos: case.add_bos,
            ..Tiny::default()
        };
        let path = sandbox.path(&case.template);
        tiny.write(&path).unwrap();
        let settings = LoadSettings { gpu_layers: Some(0), repack: true };
        let model = qchat::engine::open(&path, &settings, &mut |_| true).unwrap();
        let limits = Limits { n_ctx: None, first: 0, threads: 1 };
        let mut speaker = Speaker::new(model, None, limits, Interrupt::default()).unwrap();
        for talk in &case.conversations {
            speaker.set_variable("enable_thinking", talk.enable_thinking.into()).unwrap();
            assert_eq!(talk.ids_of(&speaker), talk.ids, "{}: {}", case.template, talk.name);
            compared += 1;
        }
    }
    assert!(compared > 100, "{compared}");
}
