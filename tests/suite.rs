//! The fast suite: one harness, one file a behaviour.

#![allow(unreachable_pub, reason = "a test harness has no outside")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;
#[path = "common/talks.rs"]
mod talks;

#[path = "suite/answers.rs"]
mod answers;
#[path = "suite/bad_input.rs"]
mod bad_input;
#[path = "suite/bench.rs"]
mod bench;
#[path = "suite/cache_commands.rs"]
mod cache_commands;
#[path = "suite/chats.rs"]
mod chats;
#[path = "suite/doctor.rs"]
mod doctor;
#[path = "suite/download_faults.rs"]
mod download_faults;
#[path = "suite/download_faults_names.rs"]
mod download_faults_names;
#[path = "suite/download_faults_races.rs"]
mod download_faults_races;
#[path = "suite/download_faults_sets.rs"]
mod download_faults_sets;
#[path = "suite/download_faults_speed.rs"]
mod download_faults_speed;
#[path = "suite/downloads.rs"]
mod downloads;
#[path = "suite/draft_accounts.rs"]
mod draft_accounts;
#[path = "suite/draft_edges.rs"]
mod draft_edges;
#[path = "suite/draft_flags.rs"]
mod draft_flags;
#[path = "suite/draft_policy.rs"]
mod draft_policy;
#[path = "suite/drafts.rs"]
mod drafts;
#[path = "suite/each.rs"]
mod each;
#[path = "suite/engine.rs"]
mod engine;
#[path = "suite/error_hints.rs"]
mod error_hints;
#[path = "suite/first_run.rs"]
mod first_run;
#[path = "suite/grammar.rs"]
mod grammar;
#[path = "suite/hybrid.rs"]
mod hybrid;
#[path = "suite/long_talks.rs"]
mod long_talks;
#[path = "suite/many.rs"]
mod many;
#[path = "suite/model_commands.rs"]
mod model_commands;
#[path = "suite/models_here.rs"]
mod models_here;
#[path = "suite/models_here_fuzz.rs"]
mod models_here_fuzz;
#[path = "suite/one_shot.rs"]
mod one_shot;
#[path = "suite/outcome.rs"]
mod outcome;
#[path = "suite/packages.rs"]
mod packages;
#[path = "suite/pairs.rs"]
mod pairs;
#[path = "suite/precedence.rs"]
mod precedence;
#[path = "suite/prefix_answers.rs"]
mod prefix_answers;
#[path = "suite/prefix_faults.rs"]
mod prefix_faults;
#[path = "suite/prefix_faults_bounds.rs"]
mod prefix_faults_bounds;
#[path = "suite/prefix_faults_races.rs"]
mod prefix_faults_races;
#[path = "suite/prompt_ids.rs"]
mod prompt_ids;
#[path = "suite/pty.rs"]
mod pty;
#[path = "suite/recipes.rs"]
mod recipes;
#[path = "suite/regressions.rs"]
mod regressions;
#[path = "suite/repl.rs"]
mod repl;
#[path = "suite/repl_answers.rs"]
mod repl_answers;
#[path = "suite/repl_editing.rs"]
mod repl_editing;
#[path = "suite/repl_keys.rs"]
mod repl_keys;
#[path = "suite/repl_markdown.rs"]
mod repl_markdown;
#[path = "suite/repl_stops.rs"]
mod repl_stops;
#[path = "suite/replay.rs"]
mod replay;
#[path = "suite/server.rs"]
mod server;
#[path = "suite/shapes.rs"]
mod shapes;
#[path = "suite/turns.rs"]
mod turns;
