//! Arbitrary text as a plan, a locator, a rate, a size or a modifier: a parsed value prints and parses again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wb_model::{
    Locator, Vary, text,
    units::{AddressRange, Rate, SizeModel, Span},
};

fn trip<T: std::str::FromStr + std::fmt::Display + PartialEq + std::fmt::Debug>(text: &str)
where
    T::Err: std::fmt::Debug,
{
    if let Ok(value) = text.parse::<T>() {
        assert_eq!(
            value
                .to_string()
                .parse::<T>()
                .expect("what is printed parses"),
            value,
            "{text}"
        );
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    trip::<Locator>(text);
    trip::<Rate>(text);
    trip::<SizeModel>(text);
    trip::<Span>(text);
    trip::<AddressRange>(text);
    trip::<Vary>(text);
    if let Ok(plan) = text::plan_from_toml("fuzz", text) {
        let _ = plan.validate();
        let again = text::plan_from_toml("fuzz", &text::plan_to_toml(&plan))
            .expect("what is printed parses");
        assert_eq!(again.validate().is_ok(), plan.validate().is_ok());
    }
});
