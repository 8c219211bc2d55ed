//! Decision which of two agents with the same host name ends.

use crate::message::Alive;

/// Messages of presence from another agent with the same host name. Two agents that start at the same time do not hear
/// each other while they listen for others.
#[derive(Debug, Default)]
pub struct OtherAgent {
    /// Identity and number of its last message.
    last: Option<(String, u64)>,
}

impl OtherAgent {
    /// Takes a message of presence. `own_id` is the identity of this agent, and `own_seq` the number of its last message. Returns true if this agent has to end, because the other one has sent more messages. Of two that
    /// started together, the one with the lower identity ends. A single message may be of an agent that was killed.
    pub fn has_precedence(&mut self, other: &Alive, own_id: &str, own_seq: Option<u64>) -> bool {
        let Some(own_seq) = own_seq.filter(|_| other.id != own_id) else {
            return false;
        };
        let is_again = |(id, seq): &(String, u64)| *id == other.id && *seq < other.seq;
        let was_heard = self.last.as_ref().is_some_and(is_again);
        self.last = Some((other.id.clone(), other.seq));
        // Their messages alternate. A lead of d at this agent is a lead of 1 - d at the other one: both decide alike.
        let lead = i128::from(other.seq) - i128::from(own_seq);
        was_heard
            && match lead {
                -1..=2 => *other.id > *own_id,
                _ => lead > 0,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alive(id: &str, seq: u64) -> Alive {
        Alive {
            id: id.to_owned(),
            seq,
            ..Alive::default()
        }
    }

    #[test]
    fn one_of_two_agents_ends() {
        for ahead in 0..9 {
            for (first, second) in [("a", "b"), ("b", "a")] {
                let (mut of_first, mut of_second) = (OtherAgent::default(), OtherAgent::default());
                let mut ended = Vec::new();
                for n in 0..3 {
                    // The first one was started `ahead` messages before the second one, and sends first.
                    if of_second.has_precedence(&alive(first, n + ahead), second, n.checked_sub(1))
                    {
                        ended.push(second);
                    }
                    if of_first.has_precedence(&alive(second, n), first, Some(n + ahead)) {
                        ended.push(first);
                    }
                }
                ended.dedup();
                assert_eq!(
                    ended.len(),
                    1,
                    "{first} is {ahead} messages ahead: {ended:?} ended"
                );
                assert!(ahead < 2 || ended == [second]);
            }
        }
    }

    #[test]
    fn one_message_of_an_ended_agent_ends_no_other_one() {
        let mut other = OtherAgent::default();
        assert!(!other.has_precedence(&alive("old", 900), "new", Some(0)));
        assert!(!other.has_precedence(&alive("old", 900), "new", Some(1)));
        assert!(!other.has_precedence(&alive("new", 2), "new", Some(2)));
        assert!(other.has_precedence(&alive("old", 901), "new", Some(2)));
    }
}
