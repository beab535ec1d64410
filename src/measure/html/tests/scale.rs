use super::super::scale::Scale;
use super::super::text;

#[test]
fn ticks_are_round() {
    let labels = |scale: Option<Scale>| {
        let ticks = scale.unwrap().ticks;
        assert!(ticks.iter().all(|tick| (0.0..=1.0).contains(&tick.at)));
        ticks.into_iter().map(|tick| tick.label).filter(|label| !label.is_empty()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(labels(Scale::from_zero([87.0, 3.0])), "0 20 40 60 80 100");
    assert_eq!(labels(Scale::from_zero([100.0])), "0 20 40 60 80 100");
    assert_eq!(labels(Scale::from_zero([0.083])), "0 0.02 0.04 0.06 0.08 0.10");
    assert_eq!(labels(Scale::from_zero([0.0])), "0 0.2 0.4 0.6 0.8 1.0");
    assert_eq!(labels(Scale::from_zero([4.2e7])), "0 1e7 2e7 3e7 4e7 5e7");
    assert_eq!(labels(Scale::log([0.98, 1.32])), "1.0 1.1 1.2 1.3");
    assert_eq!(labels(Scale::log([3.0, 400.0])), "5 10 20 50 100 200 500");
    assert_eq!(labels(Scale::log([3.0, 900.0])), "10 100 1000");
    assert_eq!(labels(Scale::log([1e-3, 1e9])), "0.001 1 1000 1e6 1e9");
    assert_eq!(labels(Some(Scale::counts(1, 8))), "1 2 3 4 5 6 7 8");
    assert_eq!(labels(Some(Scale::counts(0, 16))), "0 4 8 12 16");
}

#[test]
fn scales_bear_anything() {
    let odd =
        [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, -3.0, f64::MAX, f64::MIN_POSITIVE, 1e-300, 5e11, 1e-11, 7.0];
    for a in odd {
        assert!(Scale::from_zero([a]).is_none_or(|scale| !scale.ticks.is_empty()), "{a}");
        for b in odd {
            for scale in [Scale::from_zero([a, b]), Scale::log([a, b])].into_iter().flatten() {
                assert!(scale.ticks.len() < 20, "{a} {b} {scale:?}");
                for x in odd {
                    assert!(scale.at(x).is_none_or(|at| (0.0..=1.0).contains(&at)), "{a} {b} {x}");
                }
            }
        }
    }
    assert!(Scale::log([0.0, -1.0]).is_none() && Scale::from_zero([f64::NAN]).is_none());
}

#[test]
fn figures_have_three_digits() {
    let known = [
        (0.0, "0"),
        (12345.6, "12346"),
        (99.96, "100"),
        (99.94, "99.9"),
        (9.996, "10.0"),
        (1.234, "1.23"),
        (0.4567, "0.457"),
        (0.0123, "0.0123"),
        (-2.5, "-2.50"),
        (1e-9, "1.00e-9"),
        (1e300, "1.00e300"),
        (f64::NAN, "–"),
    ];
    for (x, says) in known {
        assert_eq!(text::figure(x), says);
    }
}
