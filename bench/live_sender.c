// SPDX-License-Identifier: Apache-2.0 OR MIT
// Sends one UDP frame repeatedly, faster than a socket can: the kernel generates the frames and
// gives them to the interface (live frames of BPF_PROG_RUN). A benchmark of receivers is then not limited by
// its sender.
//
//     live_sender OBJECT INTERFACE SIZE SECONDS [PPS]
//
// SIZE includes the FCS. Prints the number of frames given to the interface, and the seconds used.

#include <errno.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

// Maximum number of frames per call; at a fixed rate, all due frames in whole batches.
enum { MOST = 1024, BATCH = 32, FCS = 4, ETHERNET = 14, IP = 20 };

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void fail(const char *what)
{
	fprintf(stderr, "live_sender: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void put16(uint8_t *at, unsigned value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

// 198.18.1.2 to 198.19.1.2, UDP port 7, without a UDP checksum.
static void build(uint8_t *frame, int len)
{
	static const uint8_t head[] = {
		2, 0, 0, 0, 0, 0x99, 2, 0, 0, 0, 0, 1, 8, 0,
		0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 198, 18, 1, 2, 198, 19, 1, 2,
		0xc0, 0x20, 0, 7, 0, 0, 0, 0,
	};
	unsigned sum = 0;

	memcpy(frame, head, sizeof(head));
	put16(frame + ETHERNET + 2, (unsigned)(len - ETHERNET));
	put16(frame + ETHERNET + IP + 4, (unsigned)(len - ETHERNET - IP));
	for (int i = 0; i < IP; i += 2)
		sum += (unsigned)frame[ETHERNET + i] << 8 | frame[ETHERNET + i + 1];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	put16(frame + ETHERNET + 10, ~sum & 0xffff);
}

int main(int argc, char **argv)
{
	static uint8_t frame[2048];

	if (argc < 5) {
		fprintf(stderr, "usage: live_sender OBJECT INTERFACE SIZE SECONDS [PPS]\n");
		return 2;
	}
	int index = (int)if_nametoindex(argv[2]);
	int len = atoi(argv[3]) - FCS;
	double seconds = atof(argv[4]), pps = argc > 5 ? atof(argv[5]) : 0;

	if (!index)
		fail(argv[2]);
	if (len < ETHERNET + IP + 8 || len > 1514) {
		fprintf(stderr, "live_sender: a size is 46 to 1518\n");
		return 2;
	}
	build(frame, len);

	struct bpf_object *object = bpf_object__open_file(argv[1], NULL);
	struct bpf_map *constants = object ? bpf_object__find_map_by_name(object, ".rodata") : NULL;
	size_t size = 0;
	int *out = constants ? (int *)bpf_map__initial_value(constants, &size) : NULL;

	if (!out || size < sizeof(*out))
		fail(argv[1]);
	*out = index;
	if (bpf_object__load(object))
		fail("load");
	struct bpf_program *program = bpf_object__find_program_by_name(object, "live");
	// An attached program saves the kernel from patching itself for every call.
	struct bpf_link *link = bpf_program__attach_xdp(program, index);

	if (!link)
		fail("attach");
	LIBBPF_OPTS(bpf_test_run_opts, run, .data_in = frame, .data_size_in = (unsigned)len,
		    .flags = BPF_F_TEST_XDP_LIVE_FRAMES, .batch_size = BATCH);
	double begin = now(), end = begin;
	uint64_t sent = 0;

	while (end - begin < seconds) {
		double due = pps ? pps * (end - begin) - (double)sent : MOST;

		if (due >= BATCH) {
			run.repeat = due < MOST ? (int)due / BATCH * BATCH : MOST;
			if (bpf_prog_test_run_opts(bpf_program__fd(program), &run))
				fail("run");
			sent += (uint64_t)run.repeat;
		}
		end = now();
	}
	printf("%llu %.6f\n", (unsigned long long)sent, end - begin);
	bpf_link__destroy(link);
	bpf_object__close(object);
	return 0;
}
