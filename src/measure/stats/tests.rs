use super::*;

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-12 * b.abs().max(1.0)
}

#[test]
fn quantiles_are_numpys() {
    // numpy.quantile(x, q), numpy 2.4.6.
    let x = [0.5, 1.0, 2.5, 4.0, 7.0, 11.0, 13.5];
    let known =
        [(0.0, 0.5), (0.1, 0.8), (0.25, 1.75), (0.5, 4.0), (0.75, 9.0), (0.9, 12.0), (0.95, 12.75), (1.0, 13.5)];
    for (q, answer) in known {
        assert!(close(quantile(&x, q).unwrap(), answer), "{q}: {:?}", quantile(&x, q));
    }
    let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
    assert!(close(quantile(&hundred, 0.95).unwrap(), 95.05));
    assert_eq!(quantile(&[3.0], 0.95), Some(3.0));
    assert_eq!(quantile(&[], 0.5), None);
    assert_eq!(quantile(&x, 1.1), None);
    assert_eq!(quantile(&x, f64::NAN), None);
    assert_eq!(quantile(&[f64::INFINITY; 2], 0.5), Some(f64::INFINITY));
}

#[test]
fn the_high_end_is_named() {
    let samples: Vec<f64> = (1..=20).rev().map(f64::from).collect();
    let json = |samples: &[f64]| serde_json::to_string(&Summary::of(samples).unwrap()).unwrap();
    assert_eq!(json(&samples[1..]), r#"{"n":19,"p50":10.0,"max":19.0}"#);
    let twenty = Summary::of(&samples).unwrap();
    assert!(matches!(twenty.high, High::P95(p95) if close(p95, 19.05)), "{twenty:?}");
    assert!(json(&samples).contains(r#""p95":19."#));
    assert!(close(twenty.min, 1.0));
}

#[test]
fn samples_that_are_no_numbers_are_counted_apart() {
    let summary = Summary::of(&[2.0, f64::NAN, 1.0, f64::INFINITY, 3.0]).unwrap();
    assert_eq!((summary.n, summary.dropped, summary.p50), (3, 2, 2.0));
    assert!(serde_json::to_string(&summary).unwrap().ends_with(r#""dropped":2}"#));
    assert_eq!(Summary::of(&[]), None);
    assert_eq!(Summary::of(&[f64::NAN]), None);
}

#[test]
fn equal_ratios_have_no_width() {
    let ratio = Ratio::of(&[(2.0, 1.0); 7]).unwrap();
    assert_eq!((ratio.ratio, ratio.low, ratio.high, ratio.pairs), (2.0, Some(2.0), Some(2.0), 7));
    assert_eq!(ratio.verdict().of(Quantity::Rate), "faster");
    assert_eq!(ratio.verdict().of(Quantity::Time), "slower");
}

#[test]
fn the_interval_is_between_known_order_statistics() {
    // The sign test's levels: 5 pairs 0.9375 (all of the range), 6 pairs 0.96875 and 0.78125.
    let of = |n: i32| Ratio::of(&(0..n).map(|i| (2f64.powi(i), 1.0)).collect::<Vec<_>>()).unwrap();
    let five = of(5);
    assert_eq!((five.low, five.ratio, five.high), (Some(1.0), 4.0, Some(16.0)));
    let part = (0.968_75 - 0.95) / (0.968_75 - 0.781_25);
    let share = 5.0 * part / (1.0 + 4.0 * part);
    let six = of(6);
    assert!(close(six.low.unwrap(), 2f64.powf(share)) && close(six.high.unwrap(), 2f64.powf(5.0 - share)), "{six:?}");
    assert!(close(six.ratio, 2f64.powf(2.5)));
    // A table of the sign test has 40 as 14th and 27th order statistic at 0.9615, 15th and 26th at 0.9193.
    assert_eq!(depth(40).0, 13);
    assert!((depth(100_000).0 as f64 - (50_000.0 - 1.96 * 100_000f64.sqrt() / 2.0)).abs() < 2.0);
}

#[test]
fn verdicts_say_what_the_interval_says() {
    let of = |pairs: &[(f64, f64)]| Ratio::of(pairs).unwrap().verdict();
    let spread = [(0.9, 1.0), (1.1, 1.0), (1.2, 1.0), (0.8, 1.0), (1.0, 1.0), (1.05, 1.0)];
    assert_eq!(of(&spread).of(Quantity::Rate), "no difference shown");
    assert_eq!(of(&[(1.0, 1.0); 9]), Verdict::NoDifference);
    assert_eq!(of(&[(1.0, 1.1); 5]).of(Quantity::Time), "faster");
    assert_eq!(of(&[(1.0, 1.1); 4]).of(Quantity::Time), "too few pairs");
    assert_eq!(Ratio::of(&[(1.0, 1.1); 4]).unwrap().low, None);
}

#[test]
fn a_pair_that_failed_is_dropped_whole() {
    let ratio = Ratio::of(&[(2.0, 1.0), (f64::NAN, 1.0), (1.0, 0.0), (-1.0, 1.0), (1e300, 1e-300)]).unwrap();
    assert_eq!((ratio.pairs, ratio.dropped, ratio.ratio), (1, 4, 2.0));
    assert_eq!(Ratio::of(&[(0.0, 0.0)]), None);
    assert_eq!(Ratio::of(&[]), None);
}

#[test]
fn sides_swap() {
    let pairs = [(1.0, 1.3), (2.0, 1.9), (1.4, 1.0), (1.1, 1.0), (0.8, 1.0), (1.6, 1.2), (3.0, 2.0), (1.0, 1.01)];
    let swapped: Vec<_> = pairs.iter().map(|(a, b)| (*b, *a)).collect();
    let (here, there) = (Ratio::of(&pairs).unwrap(), Ratio::of(&swapped).unwrap());
    assert!(close(here.ratio * there.ratio, 1.0));
    assert!(close(here.low.unwrap() * there.high.unwrap(), 1.0));
}

#[test]
fn geometric_means() {
    assert!(close(geometric_mean(&[1.0, 4.0, 16.0]).unwrap(), 4.0));
    assert!(close(geometric_mean(&[1e-300, 1e300]).unwrap(), 1.0));
    assert_eq!(geometric_mean(&[1.0, 0.0]), None);
    assert_eq!(geometric_mean(&[]), None);
}

/// splitmix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((x ^ (x >> 31)) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

type Noise = fn(&mut Random) -> f64;

#[test]
fn the_interval_covers_the_true_ratio() {
    let noises: [(&str, Noise); 3] = [
        ("normal", |r| (0.05 * r.normal()).exp()),
        ("heavy", |r| (0.03 * r.normal()).exp() * if r.uniform() < 0.1 { 2.0 } else { 1.0 }),
        ("skewed", |r| 1.0 - 0.1 * r.uniform().ln()),
    ];
    let mut random = Random(5);
    let runs = 4000;
    for (name, noise) in noises {
        for n in [5, 7, 10, 20, 40] {
            let covered = (0..runs).filter(|_| {
                let pairs: Vec<_> = (0..n).map(|_| (1.25 * noise(&mut random), noise(&mut random))).collect();
                let ratio = Ratio::of(&pairs).unwrap();
                ratio.low.unwrap() <= 1.25 && 1.25 <= ratio.high.unwrap()
            });
            let coverage = covered.count() as f64 / f64::from(runs);
            assert!((0.92..0.975).contains(&coverage), "{name} {n}: {coverage}");
        }
    }
}
