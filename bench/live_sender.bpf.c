// SPDX-License-Identifier: Apache-2.0 OR MIT
// Live frames, which the kernel generates, leave by one interface; frames that really arrive
// there continue to the host.
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
