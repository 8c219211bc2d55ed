// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Drops the frames that carry the tag of the Linux packet generator, so that the host never answers them, and passes
// all other frames to the next program. Packet sockets have received a frame before it arrives here.
//
// `wb_pktgen_device::classify_pktgen` defines these frames; consume.rs tests that both agree.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define ETHERTYPE_OLD_QINQ 0x9100
#define PKTGEN_MAGIC 0xbe9be955
#define TAG_LEN 4
// Maximum number of tags: as many as fit in the longest packet.
#define MOST_TAGS (65536 / TAG_LEN)

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} consumed SEC(".maps");

// Offset and value of an EtherType.
struct place {
	struct __sk_buff *frame;
	__u32 at;
	__be16 type;
};

static __always_inline int is_tag(__be16 type)
{
	return type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD) ||
	       type == bpf_htons(ETHERTYPE_OLD_QINQ);
}

// Skips one tag; returns 1 to end the loop.
static long pass_tag(__u32 index, struct place *place)
{
	if (!is_tag(place->type))
		return 1;
	place->at += TAG_LEN;
	return bpf_skb_load_bytes(place->frame, place->at, &place->type, sizeof(place->type)) != 0;
}

static __always_inline int counts(struct __sk_buff *frame)
{
	struct place place = { .frame = frame, .at = 2 * ETH_ALEN };
	__u8 first;
	__u32 header_len;
	__be32 magic;

	if (bpf_skb_load_bytes(frame, place.at, &place.type, sizeof(place.type)))
		return 0;
	// The kernel has removed the outermost tag from the frame; more tags are rare.
	if (is_tag(place.type))
		bpf_loop(MOST_TAGS, pass_tag, &place, 0);

	__u32 packet = place.at + sizeof(place.type);
	if (bpf_skb_load_bytes(frame, packet, &first, sizeof(first)))
		return 0;
	if (place.type == bpf_htons(ETH_P_IP) && first >> 4 == 4) {
		header_len = (first & 0x0f) * 4;
		if (header_len < 20)
			return 0;
	} else if (place.type == bpf_htons(ETH_P_IPV6) && first >> 4 == 6) {
		header_len = 40;
	} else {
		return 0;
	}
	// The tag is expected eight bytes behind the header, whatever the protocol.
	if (bpf_skb_load_bytes(frame, packet + header_len + 8, &magic, sizeof(magic)))
		return 0;
	return magic == bpf_htonl(PKTGEN_MAGIC);
}

SEC("tcx/ingress")
int wb_consume(struct __sk_buff *frame)
{
	__u32 key = 0;
	__u64 *frames;

	if (!counts(frame))
		return TC_ACT_UNSPEC;
	frames = bpf_map_lookup_elem(&consumed, &key);
	// Per-CPU counter, and this program does not interrupt itself.
	if (frames)
		*frames += 1;
	return TC_ACT_SHOT;
}

char _license[] SEC("license") = "Dual BSD/GPL";
