//! The form of messages.

use wb_fleet_core::message::{
    Alive, Answer, LeaseMessage, MESSAGE_LIMIT, MessageError, Occupation, Op, Opened, Problem,
    Refused, RefusedKind, Registration, Reply, Request, RunEpoch, Start, Stop, StopHow, V1, decode,
    encode,
};

fn text<T: serde::Serialize>(message: &T) -> String {
    String::from_utf8(encode(message).unwrap()).unwrap()
}

#[test]
fn messages_have_the_forms_of_the_protocol() {
    let of = RunEpoch {
        run: "r1".to_owned(),
        epoch: 4,
    };
    assert_eq!(
        text(&Request::new(Op::Resolve(of))),
        r#"{"v":1,"op":"resolve","run":"r1","epoch":4}"#
    );
    let refused = Refused {
        kind: RefusedKind::Busy,
        problems: vec![Problem::new("h1: port a", "is in use")],
    };
    assert_eq!(
        text(&Reply::from(Answer::Refused(refused))),
        r#"{"v":1,"ok":false,"answer":"refused","kind":"busy","problems":[{"place":"h1: port a","what":"is in use"}]}"#
    );
    let start = Start {
        v: V1,
        run: "r1".to_owned(),
        epoch: 4,
        at_wall_ns: 1_795_726_288_000_000_000,
        offsets: [("h1".to_owned(), -5120)].into(),
        clocks: Vec::new(),
    };
    assert_eq!(
        text(&start),
        r#"{"v":1,"run":"r1","epoch":4,"at_wall_ns":1795726288000000000,"offsets":{"h1":-5120}}"#
    );
    assert_eq!(start.at("h1"), Some(1_795_726_287_999_994_880));
    assert_eq!(start.at("h2"), None);
    let stop = Stop {
        v: V1,
        epoch: 4,
        how: StopHow::Drain,
    };
    assert_eq!(text(&stop), r#"{"v":1,"epoch":4,"how":"drain"}"#);
    let alive = Alive {
        id: "x".to_owned(),
        state: Occupation::Run("r1".to_owned()),
        ..Alive::default()
    };
    assert_eq!(text(&alive), r#"{"v":1,"id":"x","seq":0,"state":"run r1"}"#);
    assert_eq!(decode::<Alive>(text(&alive).as_bytes()).unwrap(), alive);
}

#[test]
fn unknown_versions_are_refused_and_unknown_fields_are_ignored() {
    let read = |text: &str| decode::<LeaseMessage>(text.as_bytes());
    let lease = read(r#"{"v":1,"epoch":4,"seq":2,"colour":"red"}"#).unwrap();
    assert_eq!((lease.epoch, lease.seq), (4, 2));
    let error = read(r#"{"v":2,"epoch":4,"seq":2}"#)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("message of version 2; this program reads version 1"),
        "{error}"
    );
    assert!(read(r#"{"epoch":4,"seq":2}"#).is_err(), "no version");
    assert!(read("[]").is_err());
    let request = decode::<Request>(br#"{"v":1,"op":"dance"}"#);
    assert!(request.unwrap_err().to_string().contains("dance"));
    // An unknown key of a plan is an error: the part would do something else.
    let open = br#"{"v":1,"op":"open","run":"r","epoch":1,"controller":"c","lease_ms":1000,"plan":{"colour":1}}"#;
    assert!(
        decode::<Request>(open)
            .unwrap_err()
            .to_string()
            .contains("colour")
    );
}

#[test]
fn a_message_has_at_most_900_kb() {
    let large = Answer::Opened(Opened {
        warnings: vec!["x".repeat(MESSAGE_LIMIT)],
        ..Opened::default()
    });
    let error = encode(&Reply::from(large)).unwrap_err();
    assert!(matches!(error, MessageError::TooLarge(_)), "{error}");
    let bytes = vec![b' '; MESSAGE_LIMIT + 1];
    assert!(matches!(
        decode::<Alive>(&bytes),
        Err(MessageError::TooLarge(_))
    ));
}

#[test]
fn a_registration_keeps_what_it_does_not_know_of_a_port() {
    let json = r#"{"v":1,"host":"h1","id":"x","version":"0.1.0","protocol":1,"powers":["reads"],
        "ports":[{"locator":"eth2","up":true,"speed_bps":25000000000,"mac":"02:00:00:00:00:01"}],
        "labels":{"rack":"r1"}}"#;
    let registration: Registration = decode(json.as_bytes()).unwrap();
    assert_eq!(registration.ports[0].facts["mac"], "02:00:00:00:00:01");
    assert_eq!(
        decode::<Registration>(&encode(&registration).unwrap()).unwrap(),
        registration
    );
}
