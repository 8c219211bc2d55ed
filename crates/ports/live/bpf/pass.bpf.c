// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Passes all frames on. A veth takes frames from programs only while its peer has an XDP program.

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "Dual MIT/GPL";

SEC("xdp.frags")
int wb_pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}
