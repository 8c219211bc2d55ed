// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Passes everything on. A veth takes frames from programs only while its other end has a program of its own.

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "Dual MIT/GPL";

SEC("xdp.frags")
int wb_pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}
