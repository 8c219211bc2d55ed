// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Redirects the frames of the port to the AF_XDP socket of their receive queue, and passes all other frames to the
// kernel. Frames for the socket carry the time at which they passed here in front of their first byte.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define PROTOCOL_ICMPV6 58

// Values as in `settings` in program.rs.
#define SELECT_NOTHING 0
#define SELECT_ALL_BUT_CONTROL 1
#define SELECT_UDP_PORTS 2
#define SELECT_MAC 3
#define SELECT_EVERYTHING 4

// Layout as in `stamp.rs`.
#define STAMP_MAGIC 0x77625844
struct stamp {
	__u64 monotonic_ns;
	__u32 magic;
	__u32 reserved;
};

// One struct, so that the layout does not depend on the compiler: `settings` in program.rs writes it.
const volatile struct {
	__u32 selected;
	__u16 udp_low;
	__u16 udp_high;
	__u8 own_mac[ETH_ALEN];
	__u16 reserved;
} settings = {};

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

struct vlan {
	__be16 tci;
	__be16 next;
};

struct ipv4 {
	__u8 version_ihl;
	__u8 tos;
	__be16 length;
	__be16 id;
	__be16 fragment;
	__u8 ttl;
	__u8 protocol;
	__be16 checksum;
	__be32 source;
	__be32 destination;
};

struct ipv6 {
	__be32 version_class_flow;
	__be16 length;
	__u8 next;
	__u8 hops;
	__u8 source[16];
	__u8 destination[16];
};

struct udp {
	__be16 source;
	__be16 destination;
	__be16 length;
	__be16 checksum;
};

// Test tag of wirebench (12 bits and a version) and of the Linux packet generator.
#define TAG_MAGIC 0xb5e0
#define TAG_MAGIC_MASK 0xfff0
#define PKTGEN_MAGIC 0xbe9be955

#define ARP_LEN 28

// Layer-4 header and its protocol; `protocol` is -1 if there is none. `network` is the header behind Ethernet and VLAN
// tags.
struct found {
	void *network;
	void *header;
	int protocol;
	__be16 ethertype;
};

static __always_inline struct found find(void *data, void *end)
{
	struct found found = { .protocol = -1 };
	struct ethhdr *ethernet = data;
	if ((void *)(ethernet + 1) > end)
		return found;

	void *next = ethernet + 1;
	__be16 type = ethernet->h_proto;
#pragma unroll
	for (int tags = 0; tags < 2; tags++) {
		if (type != bpf_htons(ETH_P_8021Q) && type != bpf_htons(ETH_P_8021AD))
			break;
		struct vlan *tag = next;
		if ((void *)(tag + 1) > end)
			return found;
		type = tag->next;
		next = tag + 1;
	}
	found.ethertype = type;
	found.network = next;

	if (type == bpf_htons(ETH_P_IP)) {
		struct ipv4 *ip = next;
		if ((void *)(ip + 1) > end)
			return found;
		__u32 header_len = (ip->version_ihl & 0x0f) * 4;
		// Only the first fragment contains the ports.
		if (header_len < sizeof(*ip) || (ip->fragment & bpf_htons(0x1fff)))
			return found;
		found.header = next + header_len;
		found.protocol = ip->protocol;
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		struct ipv6 *ip = next;
		if ((void *)(ip + 1) > end)
			return found;
		found.header = ip + 1;
		found.protocol = ip->next;
	}
	return found;
}

static __always_inline int is_tag(void *place, void *end)
{
	__be16 *tag = place;
	if (!place || (void *)(tag + 2) > end)
		return 0;
	if ((tag[0] & bpf_htons(TAG_MAGIC_MASK)) == bpf_htons(TAG_MAGIC))
		return 1;
	return tag[0] == bpf_htons(PKTGEN_MAGIC >> 16) && tag[1] == bpf_htons(PKTGEN_MAGIC & 0xffff);
}

// Returns 1 if the test tag is behind the last header. Test frames may be echo requests, ARP, or sent to a group; they
// are measured, never answered.
static __always_inline int is_test_frame(struct found *found, void *end)
{
	if (found->ethertype == bpf_htons(ETH_P_ARP))
		return found->network && is_tag(found->network + ARP_LEN, end);
	switch (found->protocol) {
	case IPPROTO_UDP:
	case IPPROTO_ICMP:
	case PROTOCOL_ICMPV6:
		return found->header && is_tag(found->header + sizeof(struct udp), end);
	case IPPROTO_TCP: {
		__u8 *tcp = found->header;
		if (!tcp || (void *)(tcp + 20) > end)
			return 0;
		return is_tag(tcp + (tcp[12] >> 4) * 4, end);
	}
	default:
		return is_tag(found->network, end);
	}
}

// Returns 1 for frames that the kernel must receive, so that neighbours can still resolve and ping the host.
static __always_inline int is_control(struct found *found, void *data, void *end)
{
	__u8 *bytes = data;
	if ((void *)(bytes + 1) > end || (bytes[0] & 1))
		return 1;
	if (found->ethertype == bpf_htons(ETH_P_ARP))
		return 1;

	__u8 *type = found->header;
	if (found->protocol == IPPROTO_ICMP)
		return (void *)(type + 1) <= end && (*type == 8 || *type == 0);
	if (found->protocol == PROTOCOL_ICMPV6)
		return (void *)(type + 1) <= end && (*type == 128 || *type == 129 || (*type >= 133 && *type <= 137));
	return 0;
}

static __always_inline int is_ours(void *data, void *end)
{
	struct found found;
	struct udp *udp;
	__u8 *bytes = data;

	switch (settings.selected) {
	case SELECT_ALL_BUT_CONTROL:
		found = find(data, end);
		return !is_control(&found, data, end) || is_test_frame(&found, end);
	case SELECT_EVERYTHING:
		return 1;
	case SELECT_UDP_PORTS:
		found = find(data, end);
		if (found.protocol != IPPROTO_UDP)
			return 0;
		udp = found.header;
		if ((void *)(udp + 1) > end)
			return 0;
		return bpf_ntohs(udp->destination) >= settings.udp_low &&
		       bpf_ntohs(udp->destination) <= settings.udp_high;
	case SELECT_MAC:
		if ((void *)(bytes + ETH_ALEN) > end)
			return 0;
#pragma unroll
		for (int i = 0; i < ETH_ALEN; i++)
			if (bytes[i] != settings.own_mac[i])
				return 0;
		return 1;
	default:
		return 0;
	}
}

SEC("xdp")
int wb_select(struct xdp_md *context)
{
	if (!is_ours((void *)(long)context->data, (void *)(long)context->data_end))
		return XDP_PASS;

	__u32 queue = context->rx_queue_index;
	if (!bpf_map_lookup_elem(&sockets, &queue))
		return XDP_PASS;

	// Without room in front, the frame has no timestamp; the reader finds no magic number there.
	if (bpf_xdp_adjust_meta(context, -(int)sizeof(struct stamp)) == 0) {
		struct stamp *stamp = (void *)(long)context->data_meta;
		if ((void *)(stamp + 1) <= (void *)(long)context->data) {
			stamp->monotonic_ns = bpf_ktime_get_ns();
			stamp->magic = STAMP_MAGIC;
			stamp->reserved = 0;
		}
	}
	return bpf_redirect_map(&sockets, queue, XDP_PASS);
}

char _license[] SEC("license") = "Dual BSD/GPL";
