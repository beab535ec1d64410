//! What a model can do on a machine at best, what it does, and what would help most: the rules, without a clock or a file.
//!
//! Decode reads every weight once a token and the KV of all that came before: bandwidth / bytes is its ceiling (the
//! roofline of Williams, Waterman and Patterson 2009). Prefill is bound by arithmetic.

use serde::Serialize;

use super::speed::Speed;
use crate::words::count;

/// Depths for which ceilings are stated.
const DEPTHS: [usize; 3] = [0, 4096, 32_768];

/// The ceiling of decode behind so many tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ceiling {
    pub depth: usize,
    /// Bytes that a token reads.
    pub bytes: u64,
    /// Tokens a second at most.
    pub rate: f64,
}

/// The ceiling at each depth that the model was trained for.
pub fn ceilings(weights: u64, kv_per_token: u64, bandwidth: f64, trained: usize) -> Vec<Ceiling> {
    let depths = DEPTHS.into_iter().filter(|depth| *depth <= trained);
    depths.map(|depth| ceiling(weights, kv_per_token, bandwidth, depth)).collect()
}

/// The ceiling at one depth.
pub fn ceiling(weights: u64, kv_per_token: u64, bandwidth: f64, depth: usize) -> Ceiling {
    let bytes = weights.saturating_add(kv_per_token.saturating_mul(depth as u64));
    Ceiling { depth, bytes, rate: bandwidth / bytes.max(1) as f64 }
}

/// What holds decode back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Bandwidth,
    Compute,
    /// Neither clearly.
    Both,
}

/// From the share of the ceiling that is reached and what a second row costs: for bandwidth it is free, for arithmetic a
/// whole step.
fn bound(share: f64, speed: &Speed) -> Bound {
    match speed.cost(2) {
        Some(second) if second < 1.2 => Bound::Bandwidth,
        Some(second) if second > 1.6 => Bound::Compute,
        _ if share > 0.7 => Bound::Bandwidth,
        _ if share < 0.45 => Bound::Compute,
        _ => Bound::Both,
    }
}

/// What drafting gives at best where a token is accepted with this chance: tokens a step, and the length that does it.
/// `step` is a step of the draft in steps of the target, 0 for n-grams.
fn draft_gain(speed: &Speed, step: f64, chance: f64) -> Option<(f64, usize)> {
    let mut best: Option<(f64, usize)> = None;
    for (rows, cost) in &speed.rows {
        let length = rows - 1;
        // The geometric series of Leviathan et al. 2023.
        let tokens: f64 = (0..=length).map(|i| chance.powi(i as i32)).sum();
        let gain = tokens / (cost + step * length as f64);
        if best.is_none_or(|(own, _)| gain > own) {
            best = Some((gain, length));
        }
    }
    best
}

/// What was said in chats, as far as that tells where time goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Talks {
    pub chats: usize,
    pub answers: usize,
    /// Tokens (about) of all prompts, each with everything that was said before it, and of all answers.
    pub read: f64,
    pub said: f64,
}

/// Bytes of a token, about.
const TOKEN: f64 = 4.0;

impl Talks {
    /// Takes in a chat: who spoke (the user: true) and how many bytes that was.
    pub fn add(&mut self, messages: impl Iterator<Item = (bool, usize)>) {
        let mut before = 0.0;
        let answers = self.answers;
        for (user, bytes) in messages {
            let tokens = bytes as f64 / TOKEN;
            if !user {
                self.read += before;
                self.said += tokens;
                self.answers += 1;
            }
            before += tokens;
        }
        self.chats += usize::from(self.answers > answers);
    }

    /// The share of the time that went into reading, if nothing was kept between answers.
    pub fn reading(&self, speed: &Speed) -> Option<f64> {
        let (read, said) = (self.read / speed.prefill, self.said / speed.decode());
        (self.answers > 0).then(|| read / (read + said))
    }
}

/// One thing to know, with the number behind it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    pub about: &'static str,
    pub says: String,
}

/// What verdicts are made of; what was not measured is none.
pub struct Evidence<'a> {
    pub speed: &'a Speed,
    /// The share of the ceiling that decode reaches, at the depth it was measured.
    pub share: Option<f64>,
    /// Bits of a weight, all tensors together.
    pub bits: f64,
    /// Other quantisations of this model in the registry: name and bytes beside this file's.
    pub others: &'a [(String, f64)],
    pub talks: Talks,
    /// Seconds that the prefix cache has saved, in how many answers.
    pub spared: (f64, u64),
    /// The draft model: its name and its step in steps of the target.
    pub draft: Option<(&'a str, f64)>,
}

/// Chances of acceptance for which drafts are judged: the draft model on talk and on code (tests/data/traces.jsonl).
const CHANCES: [f64; 2] = [0.6, 0.85];

/// In the order in which they pay: smaller weights, less reading, fewer steps.
pub fn verdicts(own: &Evidence) -> Vec<Verdict> {
    [quantise(own), cache(own), draft(own)].into_iter().flatten().collect()
}

fn quantise(own: &Evidence) -> Option<Verdict> {
    let share = own.share?;
    let bound = bound(share, own.speed);
    let second = own
        .speed
        .cost(2)
        // On a busy machine the second may seem to cost less than nothing.
        .map_or_else(String::new, |cost| format!(" and a second row costs {:.2} of a step", (cost - 1.0).max(0.0)));
    let reached = format!("decode reaches {:.0} % of what memory allows{second}", share * 100.0);
    let why = match bound {
        Bound::Bandwidth => format!("bound by memory: {reached}; fewer bytes a token make it faster in proportion"),
        Bound::Compute => format!("bound by arithmetic: {reached}; fewer bytes alone will not make it much faster"),
        Bound::Both => format!("bound by memory and arithmetic alike: {reached}"),
    };
    let smaller = own.others.iter().filter(|(_, size)| *size < 0.95).min_by(|a, b| b.1.total_cmp(&a.1));
    let next = match smaller {
        Some((name, size)) => {
            let most = if bound == Bound::Compute {
                String::new()
            } else {
                format!(", at most {:.2} times as fast", 1.0 / size)
            };
            format!("; {name} has {:.0} % of the bytes{most}", size * 100.0)
        }
        None if own.bits < 5.5 => {
            format!("; with {:.1} bits a weight there is little left to take away before quality goes", own.bits)
        }
        None => format!("; it has {:.1} bits a weight, and the registry has no smaller one", own.bits),
    };
    Some(Verdict { about: "quantise", says: why + &next })
}

fn cache(own: &Evidence) -> Option<Verdict> {
    let talks = &own.talks;
    let share = talks.reading(own.speed)?;
    let (seconds, times) = own.spared;
    let saved = if times > 0 {
        format!("; it has saved {seconds:.0} s in {} so far", count(times as usize, "answer"))
    } else {
        String::new()
    };
    let pays =
        if share > 0.5 { "the prefix cache is what pays" } else { "the prefix cache helps less than faster steps" };
    let says = format!(
        "in {} with {}, reading would be {:.0} % of the time if nothing were kept: {pays}{saved}",
        count(talks.chats, "saved chat"),
        count(talks.answers, "answer"),
        share * 100.0
    );
    Some(Verdict { about: "cache", says })
}

fn draft(own: &Evidence) -> Option<Verdict> {
    let gains = |step: f64| {
        let gains = CHANCES.map(|chance| draft_gain(own.speed, step, chance));
        let [Some(low), Some(high)] = gains else { return None };
        Some((low, high))
    };
    let say = |(low, high): ((f64, usize), (f64, usize))| {
        format!(
            "{:.2} times at {:.0} % accepted, {:.2} at {:.0} % ({} at once)",
            low.0,
            CHANCES[0] * 100.0,
            high.0,
            CHANCES[1] * 100.0,
            high.1
        )
    };
    let free = gains(0.0)?;
    let mut says = format!("n-grams, where text repeats: {}", say(free));
    if let Some((name, step)) = own.draft
        && let Some(both) = gains(step)
    {
        let verdict = if both.1.0 < 1.03 {
            "does not pay here"
        } else if both.0.0 > 1.03 {
            "pays here"
        } else {
            "pays here for code and the like only"
        };
        says = format!("{name} {verdict}: a step of it costs {step:.2} of a step; {}; {says}", say(both));
    }
    Some(Verdict { about: "speculate", says })
}

/// The largest context for which `needs` stays within `free` bytes, up to `trained`; 0 where not even a little fits.
pub fn largest_context(needs: impl Fn(usize) -> u64, free: u64, trained: usize) -> usize {
    let (mut fits, mut too_large) = (0, trained + 1);
    while too_large - fits > 1 {
        let middle = usize::midpoint(fits, too_large);
        if needs(middle) <= free { fits = middle } else { too_large = middle }
    }
    fits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(second: f64, four: f64) -> Speed {
        Speed { prefill: 100.0, step_ms: 80.0, depth: 136, rows: vec![(2, second), (3, 1.8), (4, four), (8, 3.5)] }
    }

    #[test]
    fn ceilings_are_bandwidth_over_bytes() {
        // 1 GB of weights and 28 KiB of KV a token, at 45 GB/s.
        let all = ceilings(1_000_000_000, 28 * 1024, 45e9, 32_768);
        let rates: Vec<f64> = all.iter().map(|own| (own.rate * 100.0).round() / 100.0).collect();
        assert_eq!(rates, [45.0, 40.27, 23.2]);
        assert_eq!(ceilings(1, 1, 1.0, 4096).len(), 2);
    }

    #[test]
    fn a_free_second_row_means_memory_and_a_dear_one_arithmetic() {
        assert_eq!(bound(0.3, &speed(1.05, 1.1)), Bound::Bandwidth);
        assert_eq!(bound(0.9, &speed(1.9, 3.0)), Bound::Compute);
        assert_eq!(bound(0.9, &speed(1.4, 2.0)), Bound::Bandwidth);
        assert_eq!(bound(0.3, &speed(1.4, 2.0)), Bound::Compute);
        assert_eq!(bound(0.6, &speed(1.4, 2.0)), Bound::Both);
    }

    #[test]
    fn the_gain_of_drafts_is_the_series_over_its_cost() {
        // Three drafted, all right: four tokens for 1.6 steps and three of the draft.
        let (gain, length) = draft_gain(&speed(1.4, 1.6), 0.1, 1.0).unwrap();
        assert_eq!((length, (gain * 1000.0).round()), (3, 2105.0));
        // Never right: one token, and the least cost is best.
        assert_eq!(draft_gain(&speed(1.4, 1.6), 0.1, 0.0).unwrap().1, 1);
        assert!(draft_gain(&Speed { rows: Vec::new(), ..speed(1.0, 1.0) }, 0.1, 0.5).is_none());
    }

    #[test]
    fn a_talk_reads_all_that_was_said_before() {
        let mut talks = Talks::default();
        talks.add([(true, 400), (false, 800), (true, 40), (false, 4)].into_iter());
        talks.add([(true, 400)].into_iter());
        // 100 tokens for the first answer of 200, 310 for the second of 1.
        assert_eq!(talks, Talks { chats: 1, answers: 2, read: 410.0, said: 201.0 });
        // 4.1 s of reading, 16.08 s of steps.
        assert!((talks.reading(&speed(1.4, 2.0)).unwrap() - 4.1 / (4.1 + 16.08)).abs() < 1e-9);
        assert_eq!(Talks::default().reading(&speed(1.4, 2.0)), None);
    }

    #[test]
    fn no_verdict_without_a_measurement() {
        let speed = speed(1.4, 1.6);
        let none = Evidence {
            speed: &Speed { rows: Vec::new(), ..speed.clone() },
            share: None,
            bits: 4.5,
            others: &[],
            talks: Talks::default(),
            spared: (0.0, 0),
            draft: None,
        };
        assert_eq!(verdicts(&none), []);
        let mut talks = Talks::default();
        talks.add([(true, 4000), (false, 40)].into_iter());
        let others = [("big".to_owned(), 2.0), ("q4".to_owned(), 0.5)];
        let all = Evidence {
            speed: &speed,
            share: Some(0.9),
            others: &others,
            talks,
            spared: (3.0, 2),
            draft: Some(("small", 0.1)),
            ..none
        };
        let all = verdicts(&all);
        assert_eq!(all.iter().map(|own| own.about).collect::<Vec<_>>(), ["quantise", "cache", "speculate"]);
        for (at, word) in
            [(0, "q4 has 50 % of the bytes, at most 2.00 times"), (1, "saved 3 s in 2 answers"), (2, "small pays here")]
        {
            assert!(all[at].says.contains(word), "{}", all[at].says);
        }
    }

    #[test]
    fn the_largest_context_is_the_last_that_fits() {
        let needs = |tokens: usize| 1000 + tokens as u64 * 10;
        assert_eq!(largest_context(needs, 2000, 500), 100);
        assert_eq!(largest_context(needs, 2000, 50), 50);
        assert_eq!(largest_context(needs, 2009, 500), 100);
        assert_eq!(largest_context(needs, 10, 500), 0);
    }
}
