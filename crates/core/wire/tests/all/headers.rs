//! End of the headers in frames that `Stack` does not build.

use wb_wire::*;

fn with_tag(headers: &[u8]) -> Vec<u8> {
    let mut frame = headers.to_vec();
    let mut tag = [0; Tag::LEN];
    Tag {
        flow: 1,
        sequence: 2,
        time_ns: 3,
    }
    .write(&mut tag);
    frame.extend(tag);
    frame
}

fn ethernet(kind: u16) -> Vec<u8> {
    Ethernet::default().emit(kind).to_vec()
}

fn found_behind(headers: &[u8]) -> bool {
    find_tag(&with_tag(headers)) == Some((headers.len(), TagFormat::Native))
}

fn ipv4(protocol: u8) -> Vec<u8> {
    [
        ethernet(ethertype::IPV4),
        Ipv4::new([1; 4].into(), [2; 4].into())
            .emit(protocol, 0)
            .to_vec(),
    ]
    .concat()
}

fn ipv6(next: u8) -> Vec<u8> {
    [
        ethernet(ethertype::IPV6),
        Ipv6::new([1; 16].into(), [2; 16].into())
            .emit(next, 0)
            .to_vec(),
    ]
    .concat()
}

#[test]
fn options_and_extension_headers_are_skipped() {
    let mut options = ipv4(protocol::UDP);
    options[14] = 0x47;
    options.extend([0; 8 + 8]);
    assert!(found_behind(&options));

    let mut tcp = [
        ipv4(protocol::TCP),
        Tcp::new(1, 2).emit(0).to_vec(),
        vec![1; 12],
    ]
    .concat();
    tcp[34 + 12] = 8 << 4;
    assert!(found_behind(&tcp));

    let hop_by_hop = [43, 0, 0, 0, 0, 0, 0, 0];
    let routing = [44, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let first_fragment = [17, 0, 0, 1, 0, 0, 0, 0];
    let headers = [
        &ipv6(0)[..],
        &hop_by_hop,
        &routing,
        &first_fragment,
        &[0; 8],
    ]
    .concat();
    assert!(found_behind(&headers));
}

#[test]
fn unknown_protocols_have_the_tag_at_once() {
    assert!(found_behind(&ethernet(ethertype::EXPERIMENTAL)));
    assert!(found_behind(
        &[ethernet(0x9100), vec![0, 5, 0x88, 0xb5]].concat()
    ));
    assert!(found_behind(
        &[
            ethernet(ethertype::MPLS),
            MplsLabel::new(16).emit(false).to_vec(),
            MplsLabel::new(17).emit(true).to_vec()
        ]
        .concat()
    ));
    assert!(found_behind(&ipv4(protocol::EXPERIMENTAL)));
    assert!(found_behind(&ipv6(protocol::EXPERIMENTAL)));
}

#[test]
fn an_arp_message_is_skipped() {
    let message = Arp {
        operation: ArpOperation::Request,
        sender_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        sender_ip: [198, 18, 1, 2].into(),
        target_mac: MacAddr::ZERO,
        target_ip: [198, 18, 1, 3].into(),
    };
    let plain = [&ethernet(ethertype::ARP)[..], &message.emit()].concat();
    assert_eq!(plain.len(), 42);
    assert!(found_behind(&plain));
    let vlan = [
        &ethernet(ethertype::VLAN)[..],
        &Vlan::customer(5).emit(ethertype::ARP),
        &message.emit(),
    ]
    .concat();
    assert!(found_behind(&vlan));
    assert_eq!(headers_end(&plain[..41]), None);
}

#[test]
fn later_fragments_and_bad_lengths_have_none() {
    let mut fragment = [ipv4(protocol::UDP), vec![0; 8]].concat();
    assert!(found_behind(&fragment));
    fragment[21] = 1;
    assert!(!found_behind(&fragment));

    let mut short_header = [ipv4(protocol::UDP), vec![0; 8]].concat();
    short_header[14] = 0x44;
    assert_eq!(headers_end(&with_tag(&short_header)), None);

    let later = [17, 0, 0, 8, 0, 0, 0, 0];
    assert!(!found_behind(&[&ipv6(44)[..], &later, &[0; 8]].concat()));

    // Labels without a bottom, truncated tags.
    assert_eq!(
        headers_end(&[ethernet(ethertype::MPLS), vec![0; 40]].concat()),
        None
    );
    assert_eq!(headers_end(&[0x81, 0].repeat(40)), None);
}
