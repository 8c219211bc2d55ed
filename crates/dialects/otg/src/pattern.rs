//! Values of a header field from packet to packet.

use serde_json::Value;
use wb_model::units::Mac;
use wb_wire::SplitMix64;

use crate::reader::{Node, whole};

/// Alternatives of a field.
const CHOICES: [&str; 6] = [
    "value",
    "values",
    "increment",
    "decrement",
    "random",
    "auto",
];
/// Maximum number of values that are listed.
const MOST_LISTED: u64 = 65_536;

/// Form of a value in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Number with this many bits.
    Number(u32),
    Mac,
    Ipv4,
    Ipv6,
}

impl Form {
    pub(crate) const fn bits(self) -> u32 {
        match self {
            Self::Number(bits) => bits,
            Self::Mac => 48,
            Self::Ipv4 => 32,
            Self::Ipv6 => 128,
        }
    }

    fn parse(self, value: &Value) -> Option<u128> {
        let text = value.as_str();
        match self {
            Self::Number(_) => whole(value).map(u128::from),
            Self::Mac => {
                let mac: Mac = text?.parse().ok()?;
                Some(mac.0.iter().fold(0, |n, byte| n << 8 | u128::from(*byte)))
            }
            Self::Ipv4 => {
                let address: std::net::Ipv4Addr = text?.parse().ok()?;
                Some(address.to_bits().into())
            }
            Self::Ipv6 => {
                // Clients write the unspecified address as `::0`.
                let address: std::net::Ipv6Addr = text?.parse().ok()?;
                Some(address.to_bits())
            }
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Number(_) => "a whole number",
            Self::Mac => "a MAC address such as 00:00:5e:00:53:01",
            Self::Ipv4 => "an IPv4 address",
            Self::Ipv6 => "an IPv6 address",
        }
    }
}

/// Largest value of a field with this many bits.
pub(crate) const fn largest(bits: u32) -> u128 {
    match bits {
        128.. => u128::MAX,
        bits => (1 << bits) - 1,
    }
}

/// Values of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    /// One value for all packets.
    Constant(u128),
    /// These in turn.
    List(Vec<u128>),
    /// `count` values in steps, then again; none exceeds the field.
    Steps {
        first: u128,
        last: u128,
        step: u128,
        is_down: bool,
    },
}

/// Field of a header as it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    Absent,
    Auto,
    Values(Values),
}

impl Given {
    /// The given values, or a constant.
    pub(crate) fn or(self, default: u128) -> Values {
        match self {
            Self::Values(values) => values,
            Self::Absent | Self::Auto => Values::Constant(default),
        }
    }

    pub(crate) const fn is_left(&self) -> bool {
        matches!(self, Self::Absent | Self::Auto)
    }
}

fn value(node: &mut Node<'_>, key: &str, form: Form) -> Option<u128> {
    let given = node.take(key)?;
    checked(node, node.at(key), given, form)
}

fn checked(node: &Node<'_>, path: String, given: &Value, form: Form) -> Option<u128> {
    match form.parse(given) {
        None => {
            node.problems
                .add(path, format!("must be {}, got {given}", form.name()));
            None
        }
        Some(number) if number > largest(form.bits()) => {
            let most = largest(form.bits());
            let what = format!("out of range: {number}; must be between 0 and {most}");
            node.problems.add(path, what);
            None
        }
        number => number,
    }
}

/// Reads the field `key` of a header. `seed` replaces the seed 0.
pub(crate) fn read(header: &mut Node<'_>, key: &str, form: Form, seed: u64) -> Given {
    let Some(mut node) = header.node(key) else {
        return Given::Absent;
    };
    let choice = node.choice(&CHOICES, "value");
    let values = match choice.as_str() {
        "auto" => {
            // The server knows the value. Ways to get it from elsewhere are not supported.
            let auto = node.take("auto");
            if auto.is_some_and(Value::is_object) {
                node.unsupported("auto", "");
            }
            node.end();
            return Given::Auto;
        }
        "value" => value(&mut node, "value", form).map(Values::Constant),
        "values" => {
            let is_given = node.has("values");
            let list = node.list("values");
            if is_given && list.is_empty() {
                node.problem("values", "out of range: must have at least one value");
            }
            let list: Vec<u128> = list
                .into_iter()
                .filter_map(|(path, given)| checked(&node, path, given, form))
                .collect();
            match list.as_slice() {
                [] => None,
                [only] => Some(Values::Constant(*only)),
                _ => Some(Values::List(list)),
            }
        }
        "increment" | "decrement" => {
            let mut counter = node.node_or_empty(&choice);
            let start = value(&mut counter, "start", form).unwrap_or(0);
            let step = value(&mut counter, "step", form).unwrap_or(1);
            let count = count(&mut counter);
            let values = steps(start, step, count, choice == "decrement", form);
            if values.is_none() {
                let what = format!("more than {MOST_LISTED} values that wrap around");
                counter.unsupported("count", &what);
            }
            counter.end();
            values
        }
        "random" => {
            let mut random = node.node_or_empty("random");
            let min = value(&mut random, "min", form).unwrap_or(0);
            let max = value(&mut random, "max", form).unwrap_or_else(|| largest(form.bits()));
            let own = random.number("seed").unwrap_or(1);
            let count = count(&mut random);
            if min > max {
                random.problem("min", "out of range: must not exceed max");
            }
            if count > MOST_LISTED {
                let what = format!("more than {MOST_LISTED} random values");
                random.unsupported("count", &what);
            }
            random.end();
            let own = if own == 0 { seed } else { own };
            let mut generator = SplitMix64::for_purpose(own, &[]);
            let range = max.saturating_sub(min).wrapping_add(1);
            let list =
                (0..count.min(MOST_LISTED)).map(|_| min.wrapping_add(generator.below_u128(range)));
            Some(match count {
                1 => Values::Constant(list.take(1).sum()),
                _ => Values::List(list.collect()),
            })
        }
        other => {
            node.unknown_choice(other);
            return Given::Absent;
        }
    };
    tags(&mut node);
    node.end();
    values.map_or(Given::Absent, Given::Values)
}

/// Number of values of a counter.
fn count(node: &mut Node<'_>) -> u64 {
    node.number_in("count", 1..=u64::from(u32::MAX), 1)
}

/// An empty list of metric tags is the same as none.
fn tags(node: &mut Node<'_>) {
    let is_empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
    if node.take("metric_tags").is_some_and(|tags| !is_empty(tags)) {
        node.unsupported("metric_tags", "");
    }
}

/// Values of a counter; `None` if there are too many to list.
fn steps(start: u128, step: u128, count: u64, is_down: bool, form: Form) -> Option<Values> {
    let most = largest(form.bits());
    if count <= 1 || step == 0 {
        return Some(Values::Constant(start));
    }
    let reach = step.checked_mul(u128::from(count - 1));
    let end = reach.and_then(|reach| match is_down {
        true => start.checked_sub(reach),
        false => start.checked_add(reach).filter(|end| *end <= most),
    });
    if let Some(end) = end {
        let (first, last) = if is_down { (end, start) } else { (start, end) };
        return Some(Values::Steps {
            first,
            last,
            step,
            is_down,
        });
    }
    let nth = |n: u64| {
        let offset = step.wrapping_mul(u128::from(n));
        let value = match is_down {
            true => start.wrapping_sub(offset),
            false => start.wrapping_add(offset),
        };
        value & most
    };
    (count <= MOST_LISTED).then(|| Values::List((0..count).map(nth).collect()))
}

impl Values {
    /// All values of one round; `None` if there are too many to list.
    pub(crate) fn listed(&self) -> Option<Vec<u128>> {
        match self {
            Self::Constant(value) => Some(vec![*value]),
            Self::List(list) => Some(list.clone()),
            Self::Steps {
                first,
                last,
                step,
                is_down,
            } => {
                let count = (last - first) / step + 1;
                let nth = |n: u128| match is_down {
                    true => last - n * step,
                    false => first + n * step,
                };
                (count <= MOST_LISTED.into()).then(|| (0..count).map(nth).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::problem::Problems;

    fn first(pattern: Value, form: Form, n: usize) -> Vec<u128> {
        let problems = Problems::default();
        let header = json!({ "field": pattern });
        let mut node = Node::new("", &header, &problems);
        let values = read(&mut node, "field", form, 7).or(0).listed().unwrap();
        node.end();
        assert_eq!(problems.into_result(()), Ok(()));
        (0..n).map(|i| values[i % values.len()]).collect()
    }

    #[test]
    fn sequences_of_the_specification() {
        let number = |pattern| first(pattern, Form::Number(16), 6);
        assert_eq!(
            number(json!({"choice": "values", "values": [5010, 5015, 5020]})),
            [5010, 5015, 5020, 5010, 5015, 5020]
        );
        let counter = |start, step, count| json!({"start": start, "step": step, "count": count});
        assert_eq!(
            number(json!({"choice": "increment", "increment": counter(6010, 5, 4)})),
            [6010, 6015, 6020, 6025, 6010, 6015]
        );
        assert_eq!(
            number(json!({"choice": "decrement", "decrement": counter(2, 1, 5)})),
            [2, 1, 0, 65535, 65534, 2]
        );
        let text = |start: &str, step: &str, count| json!({"increment": {"start": start, "step": step, "count": count}});
        let v4 = first(text("198.18.255.254", "0.0.0.1", 4), Form::Ipv4, 5);
        let base = 0xc612_fffe;
        assert_eq!(v4, [base, base + 1, base + 2, base + 3, base]);
        let mac = first(
            text("00:00:00:00:00:ff", "00:00:00:00:01:00", 3),
            Form::Mac,
            4,
        );
        assert_eq!(mac, [0xff, 0x1ff, 0x2ff, 0xff]);
    }

    #[test]
    fn random_values_repeat_and_have_a_seed() {
        let random = |seed| json!({"random": {"min": 10, "max": 20, "seed": seed, "count": 5}});
        let one = first(random("1"), Form::Number(16), 10);
        assert_eq!(one[..5], one[5..]);
        assert!(one.iter().all(|value| (10..=20).contains(value)));
        assert_eq!(one, first(random("1"), Form::Number(16), 10));
        assert_ne!(
            first(random("0"), Form::Number(16), 5),
            first(random("2"), Form::Number(16), 5)
        );
    }
}
