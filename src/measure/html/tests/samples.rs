//! Reports as benchmarks would make them, from seeded noise.

use crate::generate::Finish;
use crate::measure::quality::Finding;
use crate::measure::stats::{Quantity, Ratio, Summary};
use crate::measure::*;

/// Numbers that look like noise and are the same each time.
pub(super) struct Noise(u64);

impl Noise {
    pub(super) fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Around 1.
    fn about(&mut self, width: f64) -> f64 {
        1.0 + (self.next() + self.next() + self.next() - 1.5) * width
    }
}

/// What an arm is to be like.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub(super) name: &'static str,
    pub(super) model: &'static str,
    /// Beside the first arm's.
    pub(super) speed: f64,
    pub(super) start: f64,
    /// Chance that a drafted token is accepted; none for an arm without drafts.
    pub(super) accepts: Option<f64>,
}

impl Plan {
    pub(super) const fn plain(name: &'static str, speed: f64) -> Self {
        Self { name, model: "qwen2.5-coder-1.5b", speed, start: 1.0, accepts: None }
    }
}

pub(super) const KINDS: [&str; 5] = ["repetition", "code edit", "code", "summary", "chat"];

pub(super) fn report(axis: Option<&str>, plans: &[Plan], runs: usize, depths: &[usize]) -> Report {
    let mut noise = Noise(7);
    let mut rows = Vec::new();
    for run in 0..runs {
        for (prompt, kind) in KINDS.iter().enumerate() {
            let machine = noise.about(0.08);
            for plan in plans {
                rows.push(row(plan, run, (prompt, kind), depths[prompt % depths.len()], machine, &mut noise));
            }
        }
    }
    let arms = plans.iter().map(|plan| arm(plan, &rows, plans[0].name)).collect();
    Report {
        made: "2026-11-30T01:00:00Z".to_owned(),
        version: "0.1.0 (07048e0)".to_owned(),
        engine: "b9012".to_owned(),
        machine: Machine {
            cpu: "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz".to_owned(),
            physical_cores: 2,
            threads: 2,
            memory_bytes: Some(25_769_803_776),
            build: "CPU, AVX2 FMA F16C AVX512 AVX512_VNNI AVX512_BF16, libgomp, repacked weights".to_owned(),
        },
        axis: axis.map(str::to_owned),
        runs,
        tokens: 128,
        models: vec![model("qwen2.5-coder-1.5b", "Q4_K_M", 1_117_320_768)],
        arms,
        rows,
        stopped: false,
    }
}

pub(super) fn model(name: &str, quantisation: &str, bytes: u64) -> ModelReport {
    ModelReport {
        name: name.to_owned(),
        quantisation: Some(quantisation.to_owned()),
        bytes,
        load_ms: bytes as f64 / 1.3e6,
        draft: None,
    }
}

fn row(plan: &Plan, run: usize, (prompt, kind): (usize, &str), depth: usize, machine: f64, noise: &mut Noise) -> Row {
    let likes = [1.0, 0.9, 0.6, 0.5, 0.35][prompt];
    let step = 82.0 / plan.speed * machine * (1.0 + depth as f64 / 12_000.0);
    let mut drafts = DraftReport { lengths: vec![0; 17], ..DraftReport::default() };
    let (mut itl, mut tokens) = (Vec::new(), 1);
    while tokens < 128 {
        let length = plan.accepts.map_or(0, |_| (noise.next() * 9.0 * likes) as usize);
        drafts.lengths[length] += 1;
        let mut accepted = 0;
        while accepted < length && noise.next() < plan.accepts.unwrap_or(0.0) * likes.sqrt() {
            accepted += 1;
        }
        drafts.by_position.resize(drafts.by_position.len().max(length), (0, 0));
        for (place, counts) in drafts.by_position.iter_mut().take(length).enumerate() {
            counts.0 += 1;
            counts.1 += usize::from(place < accepted);
        }
        drafts.proposed += length;
        drafts.accepted += accepted;
        *(if length == 0 { &mut drafts.plain_rounds } else { &mut drafts.rounds }) += 1;
        let slow = if noise.next() > 0.99 { 3.0 } else { 1.0 };
        itl.push(step * (1.0 + 0.18 * length as f64) * noise.about(0.05) * slow);
        tokens += accepted + 1;
    }
    drafts.mean_accepted_length = (drafts.rounds > 0).then(|| drafts.accepted as f64 / drafts.rounds as f64 + 1.0);
    let prefill_ms = depth as f64 * 9.5 * plan.start * machine * noise.about(0.03);
    Row {
        arm: plan.name.to_owned(),
        prompt: format!("{kind}-1"),
        kind: kind.to_owned(),
        run,
        prompt_tokens: depth,
        cached_tokens: 0,
        tokens,
        ttft_ms: prefill_ms + 4.0,
        prefill_ms,
        decode_ms: itl.iter().sum(),
        sampling_ms: 0.5,
        itl_ms: itl,
        joules: Some(tokens as f64 * 1.9 * noise.about(0.1) / plan.speed),
        finish: if noise.next() < 0.5 { Finish::Stop } else { Finish::Length },
        speculation: plan.accepts.is_some().then_some(drafts),
        answer: format!("{:08x}", (noise.next() * 4e9) as u32),
        ids: Vec::new(),
    }
}

fn arm(plan: &Plan, rows: &[Row], first: &str) -> ArmReport {
    let of = |name: &str| rows.iter().filter(|row| row.arm == name).collect::<Vec<_>>();
    let (own, base) = (of(plan.name), of(first));
    let summary = |figure: &dyn Fn(&Row) -> Option<f64>, rows: &[&Row]| {
        Summary::of(&rows.iter().filter_map(|row| figure(row)).collect::<Vec<_>>())
    };
    let pairs = |figure: &dyn Fn(&Row) -> Option<f64>, kind: Option<&str>| {
        let both = own.iter().zip(&base).filter(|(own, _)| kind.is_none_or(|kind| own.kind == kind));
        Ratio::of(&both.filter_map(|(own, base)| figure(own).zip(figure(base))).collect::<Vec<_>>())
    };
    let itl: Vec<f64> = own.iter().flat_map(|row| row.itl_ms.iter().copied()).collect();
    let ratio = |name: &'static str, quantity: Quantity, figure: &dyn Fn(&Row) -> Option<f64>| {
        let ratio = pairs(figure, None).filter(|_| plan.name != first)?;
        let verdict = ratio.verdict();
        Some(RatioReport { figure: name, ratio, verdict, says: verdict.of(quantity) })
    };
    let ratios = [
        ratio("decode", Quantity::Rate, &Row::decode),
        ratio("prefill", Quantity::Rate, &Row::prefill),
        ratio("ttft", Quantity::Time, &|row| Some(row.ttft_ms)),
        ratio("total", Quantity::Time, &|row| Some(row.total_ms())),
    ];
    let by_kind = KINDS.iter().filter(|kind| own.iter().any(|row| row.kind == **kind)).map(|kind| {
        let own: Vec<&Row> = own.iter().copied().filter(|row| row.kind == *kind).collect();
        KindReport {
            kind: (*kind).to_owned(),
            decode: summary(&Row::decode, &own),
            ttft_ms: summary(&|row| Some(row.ttft_ms), &own),
            ratio: pairs(&Row::decode, Some(kind)).filter(|_| plan.name != first),
        }
    });
    ArmReport {
        name: plan.name.to_owned(),
        model: plan.model.to_owned(),
        ttft_ms: summary(&|row| Some(row.ttft_ms), &own),
        itl_ms: Summary::of(&itl),
        prefill: summary(&Row::prefill, &own),
        decode: summary(&Row::decode, &own),
        joules: summary(&|row| Some(row.joules? / (row.tokens + row.prompt_tokens) as f64), &own),
        memory_bytes: Some((1.3e9 / plan.speed) as u64),
        by_kind: by_kind.collect(),
        ratios: ratios.into_iter().flatten().collect(),
        speculation: plan.accepts.map(|_| drafts(&own)),
        agreement: (plan.name != first).then(|| Agreement {
            same: own.len().saturating_sub(1),
            of: own.len(),
            largest_gap: Some(0.0131),
            looked_into: 1,
        }),
        quality: None,
        likelihood: None,
    }
}

fn drafts(rows: &[&Row]) -> DraftReport {
    let mut all = DraftReport { lengths: vec![0; 17], ..DraftReport::default() };
    for drafts in rows.iter().filter_map(|row| row.speculation.as_ref()) {
        all.proposed += drafts.proposed;
        all.accepted += drafts.accepted;
        all.rounds += drafts.rounds;
        all.plain_rounds += drafts.plain_rounds;
        all.by_position.resize(all.by_position.len().max(drafts.by_position.len()), (0, 0));
        for (sum, counts) in all.by_position.iter_mut().zip(&drafts.by_position) {
            *sum = (sum.0 + counts.0, sum.1 + counts.1);
        }
        for (sum, count) in all.lengths.iter_mut().zip(&drafts.lengths) {
            *sum += count;
        }
    }
    all.mean_accepted_length = Some(all.accepted as f64 / all.rounds as f64 + 1.0);
    all
}

/// Five ways to draft, three runs of five prompts.
pub(super) fn five_drafts() -> Report {
    let drafting = |name, speed, accepts| Plan { accepts: Some(accepts), ..Plan::plain(name, speed) };
    let plans = [
        Plan::plain("off", 1.0),
        drafting("lookup", 1.0, 0.62),
        drafting("trie", 0.98, 0.7),
        drafting("model", 0.8, 0.85),
        drafting("auto", 0.97, 0.8),
    ];
    report(Some("draft"), &plans, 3, &[420, 640, 96, 1210, 41])
}

/// Two quantisations of a model, with quality and likelihood.
pub(super) fn two_models() -> Report {
    let plans = [
        Plan { model: "qwen2.5-7b-q8_0", ..Plan::plain("qwen2.5-7b-instruct Q8_0", 1.0) },
        Plan { model: "qwen2.5-7b-q3_k_s", start: 0.9, ..Plan::plain("qwen2.5-7b-instruct Q3_K_S", 1.9) },
    ];
    let mut report = report(Some("model"), &plans, 6, &[512, 1024, 2048, 4096, 8192]);
    report.models =
        vec![model("qwen2.5-7b-q8_0", "Q8_0", 8_098_525_888), model("qwen2.5-7b-q3_k_s", "Q3_K_S", 3_492_368_320)];
    let finding = |prompt: &str, kind: &str, check, says: &str| PromptFinding {
        prompt: prompt.to_owned(),
        kind: kind.to_owned(),
        finding: Finding { check, says: says.to_owned() },
    };
    let few = vec![finding("code-3", "code", "code", "line 12: ) closes nothing")];
    let mut many = few.clone();
    many.push(finding("long-2", "long", "repetition", "7 lines repeat: \"and then she walked to the window, an…\""));
    many.push(finding("json-1", "format", "json", "not JSON: expected `,` or `}` at line 3 column 5"));
    many.push(finding("chinese-2", "chinese", "chinese", "traditional forms: 體 國 學 in a text in simplified ones"));
    let quality = |with_findings, findings| Some(QualityReport { prompts: 28, with_findings, findings });
    report.arms[0].quality = quality(1, few);
    report.arms[1].quality = quality(4, many);
    let likelihood =
        |nll: f64, kl, same_top| Some(Likelihood { tokens: 4096, nll, bits_per_byte: nll / 2.9, kl, same_top });
    report.arms[0].likelihood = likelihood(2.013, None, None);
    report.arms[1].likelihood = likelihood(2.131, Some(0.0831), Some(0.887));
    report
}

pub(super) fn one_arm() -> Report {
    report(None, &[Plan::plain("smollm2-135m", 6.0)], 5, &[300])
}

pub(super) fn nothing() -> Report {
    let mut report = report(Some("threads"), &[Plan::plain("1", 1.0), Plan::plain("2", 1.8)], 0, &[300]);
    report.stopped = true;
    report
}

/// More arms than there are colours, one of them stopped before its fifth pair.
pub(super) fn many_arms() -> Report {
    let names = ["1", "2", "3", "4", "6", "8", "12", "16", "24", "32", "48", "64"];
    let plans: Vec<Plan> =
        names.iter().enumerate().map(|(i, name)| Plan::plain(name, 1.0 + (i as f64).ln_1p())).collect();
    report(Some("threads"), &plans, 1, &[420, 640, 96, 1210, 41])
}

/// What a file's metadata may hold.
pub(super) const HOSTILE: [&str; 4] = [
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>",
    "\" onmouseover=\"alert(3)' \u{1b}[31mred\u{0} \u{202e}gnp.exe \u{7f}\u{9b}\u{ffff}",
    "a-very-long-name-without-any-place-to-break-it-that-goes-on-and-on-qwen2.5-coder-32b-instruct-abliterated-imatrix-IQ4_XS-00001-of-00009",
    "模型 ‏עברית‏ &amp; <b>bold</b> ]]> <!-- --!>",
];

pub(super) fn hostile() -> Report {
    let plan = |name| Plan { accepts: Some(0.7), ..Plan::plain(name, 1.0) };
    let mut report = report(Some(HOSTILE[0]), &HOSTILE.map(plan), 3, &[50, 5000]);
    report.models = HOSTILE.iter().map(|name| model(name, name, 1 << 30)).collect();
    report.machine.cpu = HOSTILE[1].to_owned();
    report.machine.build = HOSTILE[0].to_owned();
    for (i, row) in report.rows.iter_mut().enumerate() {
        row.prompt = HOSTILE[i % 4].to_owned();
        row.answer = HOSTILE[(i + 1) % 4].repeat(4);
    }
    for arm in &mut report.arms {
        arm.model = HOSTILE[3].to_owned();
        arm.by_kind.iter_mut().zip(HOSTILE).for_each(|(kind, name)| kind.kind = name.to_owned());
        let finding = Finding { check: "json", says: HOSTILE[0].to_owned() };
        let findings = vec![PromptFinding { prompt: HOSTILE[1].to_owned(), kind: HOSTILE[3].to_owned(), finding }];
        arm.quality = Some(QualityReport { prompts: 1, with_findings: 1, findings });
    }
    report
}

/// Figures that no plot can bear, among others that it can.
pub(super) fn absurd() -> Report {
    let mut report = five_drafts();
    let absurd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -1.0, f64::MAX, f64::MIN_POSITIVE];
    for (row, bad) in report.rows.iter_mut().zip(absurd.iter().cycle().copied()) {
        (row.ttft_ms, row.decode_ms) = (bad, bad);
        row.itl_ms = vec![bad, 1.0, bad];
    }
    for (arm, bad) in report.arms.iter_mut().zip(absurd) {
        let broken = Ratio { ratio: bad, low: Some(bad), high: Some(f64::MAX), pairs: 5, dropped: 3 };
        arm.decode = Some(Summary { p50: bad, dropped: 2, ..Summary::of(&[1.0]).unwrap() });
        arm.ratios.iter_mut().for_each(|ratio| ratio.ratio = broken.clone());
        arm.by_kind.iter_mut().for_each(|kind| kind.ratio = Some(broken.clone()));
        arm.likelihood =
            Some(Likelihood { tokens: 0, nll: bad, bits_per_byte: bad, kl: Some(bad), same_top: Some(bad) });
        arm.quality = Some(QualityReport { prompts: 0, with_findings: 0, findings: Vec::new() });
        let none = DraftReport {
            proposed: 1,
            by_position: vec![(0, 0), (0, 3)],
            lengths: vec![0, 0],
            ..DraftReport::default()
        };
        arm.speculation = Some(none);
    }
    report
}

pub(super) fn all() -> Vec<(&'static str, Report)> {
    vec![
        ("five-drafts", five_drafts()),
        ("two-models", two_models()),
        ("one-arm", one_arm()),
        ("nothing", nothing()),
        ("many-arms", many_arms()),
        ("hostile", hostile()),
        ("absurd", absurd()),
    ]
}
