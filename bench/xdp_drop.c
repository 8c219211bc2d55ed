// SPDX-License-Identifier: Apache-2.0 OR MIT
// Peer end of a benchmark: drops every frame as early as the kernel can.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp")
int drop(struct xdp_md *ctx)
{
	return XDP_DROP;
}

char _license[] SEC("license") = "Dual MIT/GPL";
