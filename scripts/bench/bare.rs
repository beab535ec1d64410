//! The reference of scripts/bench/baseline: a bare loop of decode calls through the same binding, build and model.
//!
//! `bare MODEL THREADS N_CTX DECODE [repack|plain] TOKEN...` loads, evaluates the tokens in one batch, then DECODE single
//! tokens (the likeliest each time), and prints `first` with the first token, at the end
//! one JSON object. With `plain` the weights are not repacked, as in qchat.

#![allow(clippy::print_stdout, reason = "this is its output")]

use std::ffi::CString;
use std::num::NonZeroU32;
use std::ptr::NonNull;
use std::time::Instant;

use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::token::LlamaToken;

fn main() {
    let began = Instant::now();
    let args: Vec<String> = std::env::args().collect();
    let number = |at: usize| args[at].parse::<u32>().expect("a number");
    let (threads, n_ctx, decode) = (number(2), number(3), number(4));
    let prompt: Vec<LlamaToken> = args[6..].iter().map(|t| LlamaToken(t.parse().expect("a token id"))).collect();

    let mut backend = LlamaBackend::init().expect("a backend");
    backend.void_logs();
    let model = load(&backend, &args[1], args[5] == "repack");
    let params = LlamaContextParams::default()
        .with_n_ctx(NonZeroU32::new(n_ctx))
        .with_n_threads(threads as i32)
        .with_n_threads_batch(threads as i32);
    let mut context = model.new_context(&backend, params).expect("a context");
    let load_ms = ms(began);

    let start = Instant::now();
    let mut batch = LlamaBatch::new(prompt.len().max(1), 1);
    for (pos, token) in prompt.iter().enumerate() {
        batch.add(*token, pos as i32, &[0], pos + 1 == prompt.len()).expect("room");
    }
    context.decode(&mut batch).expect("prefill");
    let mut token = likeliest(context.get_logits_ith(prompt.len() as i32 - 1));
    let prefill_ms = ms(start);
    // A line of its own, so that the first token can be timed from outside.
    println!("first");

    let mut tokens = vec![token.0];
    let start = Instant::now();
    for step in 0..decode {
        batch.clear();
        batch.add(token, prompt.len() as i32 + step as i32, &[0], true).expect("room");
        context.decode(&mut batch).expect("decode");
        token = likeliest(context.get_logits_ith(0));
        tokens.push(token.0);
    }
    let decode_ms = ms(start);
    println!(
        "{{\"load_ms\":{load_ms:.3},\"prefill_ms\":{prefill_ms:.3},\"decode_ms\":{decode_ms:.3},\"decoded\":{decode},\"tokens\":{tokens:?}}}"
    );
}

fn load(backend: &LlamaBackend, path: &str, repack: bool) -> LlamaModel {
    if repack {
        return LlamaModel::load_from_file(backend, path, &LlamaModelParams::default()).expect("a model");
    }
    let path = CString::new(path).expect("a path");
    // SAFETY: as in engine/llama/load.rs: the binding's model is a transparent wrapper of this pointer.
    unsafe {
        let mut params = llama_cpp_sys_2::llama_model_default_params();
        params.use_extra_bufts = false;
        let model = llama_cpp_sys_2::llama_model_load_from_file(path.as_ptr(), params);
        std::mem::transmute::<NonNull<llama_cpp_sys_2::llama_model>, LlamaModel>(NonNull::new(model).expect("a model"))
    }
}

fn likeliest(logits: &[f32]) -> LlamaToken {
    let mut best = 0;
    for (index, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = index;
        }
    }
    LlamaToken(best as i32)
}

fn ms(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
