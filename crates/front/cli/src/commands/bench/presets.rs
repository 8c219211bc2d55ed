//! Presets for times and limits of a suite: short for a quick look, standard values for conformance.

use wb_model::{
    Stream,
    bench::{
        BurstTest, GoalPlan, LatencyTest, RecoveryTest, Service, Share, SuitePlan, SuiteTest,
        SuiteTimes,
    },
    units::Span,
};

/// RFC 2544 section 9.1.
pub(super) const RFC2544_SIZES: [&str; 7] = ["64", "128", "256", "512", "1024", "1280", "1518"];

/// Default length of a search trial if the plan gives none.
pub(super) const SEARCH: Span = Span::from_secs(2);

/// RFC 2544 appendix C.2.6.1.
const RFC2544_TTL: u8 = 10;

/// Preset of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Preset {
    /// Results within minutes.
    Fast,
    /// [`SuitePlan::default`], with search trials of [`SEARCH`].
    Usual,
    /// Values that the standards require.
    Conformance,
}

impl Preset {
    /// Applies the times and limits to a suite.
    pub(super) fn apply(self, suite: &mut SuitePlan) {
        match self {
            Self::Fast => fast(suite),
            Self::Usual => {}
            Self::Conformance => suite.conform(),
        }
        for service in &mut suite.services {
            self.apply_to_service(service);
        }
    }

    /// Applies the times to a service.
    pub(super) fn apply_to_service(self, service: &mut Service) {
        match self {
            Self::Fast => {
                service.step = Span::from_secs(1);
                // Availability is undefined for less than 10 s.
                service.performance = match service.availability {
                    Some(_) => Span::from_secs(10),
                    None => Span::from_secs(5),
                };
            }
            Self::Usual => {}
            Self::Conformance => service.step = Span::from_secs(60),
        }
    }

    /// Returns a stream with the time to live of the standard, before options are applied.
    pub(super) fn stream(self) -> Stream {
        let mut stream = Stream::default();
        if matches!(self, Self::Conformance) {
            stream.ttl = RFC2544_TTL;
        }
        stream
    }
}

fn fast(suite: &mut SuitePlan) {
    "fast".clone_into(&mut suite.preset);
    suite.times = SuiteTimes {
        trial: Span::from_secs(1),
        search: Some(Span::from_millis(400)),
        ramp: Span::from_millis(200),
        drain: Span::from_millis(200),
        settle: Span::from_millis(200),
        ..suite.times
    };
    set_precision(suite, Share(0.005));
    suite.search.budget = Span::from_secs(120);
    suite.latency = LatencyTest {
        duration: Span::from_millis(1200),
        after: Span::from_millis(200),
        // `bench compare` judges a change by the spread of repetitions.
        repetitions: 3,
        ..suite.latency.clone()
    };
    suite.b2b = BurstTest {
        searches: 2,
        longest: Span::from_secs(1),
        ..suite.b2b
    };
    suite.recovery = RecoveryTest {
        overload: Span::from_secs(2),
        half: Span::from_secs(3),
        repetitions: 2,
    };
}

/// Sets the precision at which searches end.
pub(super) fn set_precision(suite: &mut SuitePlan, precision: Share) {
    suite.search.precision = Some(precision);
    suite.search.resolution = None;
    if suite.tests.contains(&SuiteTest::Ndr) {
        suite.search.goals = suite.goals();
    }
    for goal in &mut suite.search.goals {
        goal.width = precision;
    }
}

/// Returns the MLRsearch goal with this name, with the default precision.
///
/// # Errors
/// If the name is unknown.
pub(super) fn goal(name: &str) -> Result<GoalPlan, String> {
    GoalPlan::named(name).ok_or_else(|| "expected ndr, pdr, rfc2544 or tst009".to_owned())
}
