// SPDX-License-Identifier: Apache-2.0 OR MIT
// Frames that the kernel itself makes (live frames) leave by one interface; what really arrives
// there goes on to the host.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

const volatile int out_ifindex = 0;

SEC("xdp")
int live(struct xdp_md *ctx)
{
	if (ctx->ingress_ifindex == out_ifindex)
		return XDP_PASS;
	return bpf_redirect(out_ifindex, 0);
}

char _license[] SEC("license") = "Dual MIT/GPL";
