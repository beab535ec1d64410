use super::*;

fn sampling() -> Sampling {
    Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, repeat_penalty: 1.0, seed: 1 }
}

/// A row of logits that looks like a model's: most of it noise, a few entries high.
fn row(seed: u64, len: usize) -> Vec<f32> {
    let noise = Noise::new(seed);
    (0..len)
        .map(|i| noise.gumbel(usize::from(i % 97 == 0), Token::from_index(i)) * if i % 97 == 0 { 4.0 } else { 1.5 })
        .collect()
}

/// The same rules, written the obvious way: sort everything, cut, renormalise.
fn reference(logits: &[f32], s: &Sampling, recent: &[Token]) -> Vec<(Token, f64)> {
    let mut all: Vec<(Token, f64)> =
        logits.iter().enumerate().map(|(i, &x)| (Token::from_index(i), f64::from(x))).collect();
    for (token, logit) in &mut all {
        if recent.contains(token) {
            let penalty = f64::from(s.repeat_penalty);
            *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
        }
    }
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    if s.top_k > 0 {
        all.truncate(s.top_k);
    }
    let max = all[0].1;
    let mass: f64 = all.iter().map(|(_, x)| (x - max).exp()).sum();
    if s.top_p < 1.0 {
        let mut sum = 0.0;
        let cut = all.iter().position(|(_, x)| {
            sum += (x - max).exp() / mass;
            sum >= f64::from(s.top_p)
        });
        all.truncate(cut.map_or(all.len(), |i| i + 1));
    }
    if s.min_p > 0.0 {
        all.retain(|(_, x)| (x - max).exp() >= f64::from(s.min_p));
    }
    let temperature = f64::from(s.temperature);
    let mass: f64 = all.iter().map(|(_, x)| ((x - max) / temperature).exp()).sum();
    all.into_iter().map(|(token, x)| (token, ((x - max) / temperature).exp() / mass)).collect()
}

#[test]
fn greedy_is_the_first_of_the_largest() {
    let mut sampler = Sampler::new(Sampling { temperature: 0.0, ..sampling() });
    for len in [1, 15, 16, 127, 128, 129, 1000] {
        let logits = row(5, len);
        let expected = (0..len).rev().max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap();
        assert_eq!(sampler.sample(&logits, 0, &[]), Token::from_index(expected), "{len}");
    }
    assert_eq!(sampler.sample(&[1.0, 3.0, 3.0, f32::NAN], 0, &[]), Token(1));
}

#[test]
fn a_penalty_can_move_the_maximum() {
    let mut sampler = Sampler::new(Sampling { temperature: 0.0, repeat_penalty: 2.0, ..sampling() });
    let logits = [1.0, 4.0, 3.0, -1.0];
    assert_eq!(sampler.sample(&logits, 0, &[]), Token(1));
    let said = [Token(1)];
    assert_eq!(sampler.sample(&logits, 1, &said), Token(2));
    // Ties after the penalty go to the smaller id, penalised or not.
    assert_eq!(sampler.sample(&[2.0, 4.0, 0.0, 0.0], 2, &said), Token(0));
    assert_eq!(sampler.sample(&[0.0, 4.0, 2.0, 0.0], 2, &said), Token(1));
}

#[test]
fn a_bonus_can_move_the_maximum() {
    let mut sampler = Sampler::new(Sampling { temperature: 0.0, repeat_penalty: 0.5, ..sampling() });
    assert_eq!(sampler.sample(&[3.0, 4.0], 0, &[Token(0)]), Token(0));
}

#[test]
fn samples_come_from_the_transformed_distribution() {
    // Pearson's chi-square against the probabilities of the plain reference, for each combination of transforms.
    let settings = [
        Sampling { ..sampling() },
        Sampling { temperature: 0.6, ..sampling() },
        Sampling { top_k: 7, ..sampling() },
        Sampling { top_p: 0.8, ..sampling() },
        Sampling { min_p: 0.1, ..sampling() },
        Sampling { top_k: 20, top_p: 0.9, min_p: 0.05, temperature: 0.7, ..sampling() },
        Sampling { top_p: 0.9, min_p: 0.02, temperature: 1.5, repeat_penalty: 1.3, ..sampling() },
        Sampling { top_k: 12, repeat_penalty: 1.3, ..sampling() },
        Sampling { repeat_penalty: 1.3, ..sampling() },
    ];
    let logits: Vec<f32> = row(11, 300).iter().map(|x| x * 0.6).collect();
    let recent = [Token(0), Token(97), Token(5)];
    for (number, sampling) in settings.into_iter().enumerate() {
        let expected = reference(&logits, &sampling, &recent);
        let mut sampler = Sampler::new(Sampling { seed: number as u64, ..sampling.clone() });
        let draws = 40_000;
        let mut counts = std::collections::HashMap::new();
        for pos in 0..draws {
            *counts.entry(sampler.sample(&logits, pos, &recent)).or_insert(0u32) += 1;
        }
        for token in counts.keys() {
            assert!(expected.iter().any(|(t, _)| t == token), "{token:?} was cut by {sampling:?}");
        }
        // Rare outcomes go into one cell, as the test asks for expected counts of five or more.
        let (mut cells, mut chi, mut rare) = (0u32, 0.0, (0.0, 0.0));
        for (token, p) in &expected {
            let (e, o) = (p * draws as f64, f64::from(*counts.get(token).unwrap_or(&0)));
            if e < 5.0 {
                rare = (rare.0 + e, rare.1 + o);
            } else {
                chi += (o - e).powi(2) / e;
                cells += 1;
            }
        }
        if rare.0 >= 5.0 {
            chi += (rare.1 - rare.0).powi(2) / rare.0;
            cells += 1;
        }
        // Five standard deviations of a chi-square with n degrees of freedom: n + 5 sqrt(2 n), and room for small n.
        let n = f64::from(cells.max(2) - 1);
        assert!(chi < n + 5.0 * (2.0 * n).sqrt() + 5.0, "{sampling:?}: chi-square {chi} with {n} degrees");
    }
}

#[test]
fn what_is_kept_agrees_with_sorting_everything() {
    // Deterministic: the same noise over the reference's candidates must pick the same token.
    for seed in 0..300u64 {
        let len = [3, 128, 1000, 4096][(seed % 4) as usize];
        let logits = row(seed, len);
        let recent = [Token(1), Token::from_index(len - 1), Token(97)];
        let sampling = Sampling {
            temperature: [0.3, 1.0, 2.0][(seed % 3) as usize],
            top_k: [0, 1, 5, 40, 5000][(seed / 3 % 5) as usize],
            top_p: [1.0, 0.95, 0.5, 0.01][(seed / 5 % 4) as usize],
            min_p: [0.0, 0.05, 0.5][(seed / 7 % 3) as usize],
            repeat_penalty: [1.0, 1.2][(seed / 2 % 2) as usize],
            seed,
        };
        let mut sampler = Sampler::new(sampling.clone());
        let picked = sampler.sample(&logits, 9, &recent);
        let noise = Noise::new(seed);
        let expected = reference(&logits, &sampling, &recent);
        let score = |&(token, p): &(Token, f64)| p.ln() + f64::from(noise.gumbel(9, token));
        let best = expected.iter().max_by(|a, b| score(a).total_cmp(&score(b))).unwrap();
        assert_eq!(picked, best.0, "seed {seed}: {sampling:?}");
    }
}

#[test]
fn the_same_seed_and_position_give_the_same_token_in_any_order() {
    let logits = row(2, 500);
    let mut forwards = Sampler::new(sampling());
    let mut backwards = Sampler::new(sampling());
    let mut a: Vec<Token> = (0..50).map(|pos| forwards.sample(&logits, pos, &[])).collect();
    let b: Vec<Token> = (0..50).rev().map(|pos| backwards.sample(&logits, pos, &[])).collect();
    a.reverse();
    assert_eq!(a, b);
    assert!(a.windows(2).any(|pair| pair[0] != pair[1]));
}
