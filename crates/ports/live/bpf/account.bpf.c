// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Accounts for the frames of a plan where they arrive, and drops them. Whatever is not of the plan passes on.
//
// By the same rules as `wb_measure::Analyser`: the same windows of sequence numbers, the same histograms. Each receive
// queue has an account of its own, which the CPU that serves the queue writes and user space reads; where several may serve
// it, they take it in turn.

#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define INLINE static __always_inline
// Where a tag or a header stands at most.
#define MOST_AT 960
#define TAG_LEN 18
#define TAG_MAGIC 0xb5e1
#define PKTGEN_LEN 16
#define PKTGEN_MAGIC 0xbe9be955
#define PROTOCOL_ICMPV6 58
#define MOST_VLANS 4
#define MOST_LABELS 8
#define MOST_EXTENSIONS 4
// Looks at an account that another CPU writes, some 100 ms of them (bpf.h: BPF_MAX_LOOPS), and how often in a row: that CPU
// may be a virtual one that is away.
#define LOOKS (1 << 23)
#define MOST_WAITS 4

// histogram.rs: 512 slots for each power of two up to 2^42.
#define PRECISION 9
#define SLOTS 17408
#define MOST_VALUE ((1ULL << 42) - 1)
// flow.rs.
#define NO_DELAY (-0x7fffffffffffffffLL - 1)
#define JITTER_LIMIT ((1ULL << 42) - 1)
#define JITTER_FRACTION 20
// analyser.rs.
#define LARGEST_ADVANCE (1ULL << 61)

// The layout of these structures is that of `receiver.rs`, that of a flow also that of `wb_measure`.
struct settings {
	__u32 first_flow;
	__u32 flows;
	__u32 ramp_flow;
	// Several CPUs may write one account: in the receive path of the kernel a queue is no CPU's alone.
	__u32 shared;
	// Words of 64 sequence numbers in the window of a flow: a power of two.
	__u32 words;
	// Gaps count from the first sequence number seen of each flow.
	__u32 sender_unknown;
	// The flows around that of the first tagged frame are awaited.
	__u32 around_first;
};

const volatile struct settings C = {};

struct control {
	// Frames count while this is 1.
	__u64 counts;
	// Wall clock less monotonic clock.
	__u64 wall_offset;
	// Wall clock.
	__u64 drain_since;
	__u64 end;
	// What passes on may be of others, and is not foreign.
	__u64 beside_others;
	// Wall clock: what was stamped before is of an earlier run.
	__u64 since;
	// One more than the flow of the first tagged frame; 0 before it. Written here.
	__u64 seen;
};

struct control S = {};

struct flow {
	__u64 next;
	__u64 received;
	__u64 octets;
	__s64 last_delay;
	__u64 flags;
	__s64 jitter;
	__u64 latency_low;
	__u64 latency_high;
	__u64 latency_min;
	__u64 latency_max;
	__u64 first_rx;
	__u64 last_rx;
	__u64 duplicates;
	__u64 reordered;
	__u64 late;
	__u64 unmeasured;
};

#define LAST_WAS_HIGHEST 1
#define HAS_JITTER 256
// The lowest number seen, where gaps count from there.
#define HEAD_SHIFT 32

struct histogram {
	__u64 clamped;
	__u64 sum_low;
	__u64 sum_high;
	__u64 squares_low;
	__u64 squares_high;
	__u64 min;
	__u64 max;
	__u64 slots[SLOTS];
};

struct lane {
	__u64 received;
	__u64 octets;
	__u64 duplicates;
	__u64 reordered;
	__u64 late;
	__u64 missing;
	__u64 foreign;
	__u64 foreign_octets;
	__u64 beyond_window;
	__u64 clock_errors;
	__u64 unstamped;
	__u64 ramp;
	// The first frame's; 0 before it.
	__u64 first_rx;
	__u64 last_rx;
	__u64 largest_gap;
	// The highest number with a gap before it; 0 without gaps.
	__u64 after_gap;
	struct histogram latency;
	struct histogram ipdv_below;
	struct histogram ipdv_above;
	struct histogram inter_arrival;
	struct histogram unpaired_jitter;
	// Of the foreign frames, those with a tag of ours or of pktgen.
	__u64 unplanned;
	__u64 pktgen;
	// 1 while a CPU writes it, where several may.
	__u64 taken;
	// Frames for which it was not to be had.
	__u64 dropped;
	// Foreign frames with a tag that was stamped before the run.
	__u64 stale;
	// Numbers below the head of each flow.
	__u64 head;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lane);
} lanes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} windows SEC(".maps");

char _license[] SEC("license") = "Dual MIT/GPL";

// What is counted without the account being taken.
#define ADD(counter, n) \
	do { \
		if (C.shared) \
			__sync_fetch_and_add(&(counter), (n)); \
		else \
			(counter) += (n); \
	} while (0)

struct taking {
	__u32 queue;
	__u32 done;
};

static long try_to_take(__u32 i, struct taking *t)
{
	struct lane *q = bpf_map_lookup_elem(&lanes, &t->queue);

	if (!q)
		return 1;
	if (*(volatile __u64 *)&q->taken || __sync_val_compare_and_swap(&q->taken, 0, 1))
		return 0;
	t->done = 1;
	return 1;
}

// Takes the account of a queue for this CPU alone. Nothing can hold up who has it: programs here are not interrupted by
// others. So it is short, but for a virtual CPU; returns 0 if one was away for too long.
static __noinline int take(__u32 queue)
{
	struct taking t = { .queue = queue };

#pragma unroll
	for (int i = 0; i < MOST_WAITS; i++)
		if (!t.done)
			bpf_loop(LOOKS, try_to_take, &t, 0);
	return t.done;
}

INLINE void give_back(struct lane *q)
{
	// With a barrier: what was written is seen before.
	__sync_lock_test_and_set(&q->taken, 0);
}

// Adds to a number of 128 bits.
INLINE void add_wide(__u64 *low, __u64 *high, __u64 n)
{
	*low += n;
	if (*low < n)
		(*high)++;
}

INLINE __u32 highest_bit(__u64 v)
{
	__u32 bit = 0;

	if (v >> 32) {
		v >>= 32;
		bit += 32;
	}
	if (v >> 16) {
		v >>= 16;
		bit += 16;
	}
	if (v >> 8) {
		v >>= 8;
		bit += 8;
	}
	if (v >> 4) {
		v >>= 4;
		bit += 4;
	}
	if (v >> 2) {
		v >>= 2;
		bit += 2;
	}
	return bit + (__u32)(v >> 1);
}

INLINE void record(struct histogram *h, __u64 value)
{
	__u64 shift = 0, slot, square;

	if (value > MOST_VALUE) {
		h->clamped++;
		value = MOST_VALUE;
	}
	if (value >> (PRECISION + 1))
		shift = highest_bit(value) - PRECISION;
	slot = (shift << PRECISION) + (value >> shift);
	if (slot >= SLOTS)
		return;
	h->slots[slot]++;
	add_wide(&h->sum_low, &h->sum_high, value);
	if (value >> 32) {
		// (high 2^32 + low)^2
		__u64 high = value >> 32, low = value & 0xffffffff, middle = 2 * high * low;

		square = low * low;
		h->squares_high += high * high + (middle >> 32);
		add_wide(&h->squares_low, &h->squares_high, middle << 32);
	} else {
		square = value * value;
	}
	add_wide(&h->squares_low, &h->squares_high, square);
	if (value < h->min)
		h->min = value;
	if (value > h->max)
		h->max = value;
}

INLINE __u64 *word_of(__u32 base, __u64 block)
{
	__u32 at = base + ((__u32)block & (C.words - 1));

	return bpf_map_lookup_elem(&windows, &at);
}

struct forget {
	__u64 block;
	__u32 base;
};

static long forget_word(__u32 i, struct forget *f)
{
	__u64 *word = word_of(f->base, f->block + i);

	if (word)
		*word = 0;
	return 0;
}

// Clears the bits of `count` numbers from `from` on: the ring still holds those of one window ago.
static __noinline int forget(__u32 base, __u64 from, __u64 count)
{
	struct forget f = { .block = from >> 6, .base = base };
	__u64 end = from + count, *word;

	if (count >= (__u64)C.words * 64) {
		bpf_loop(C.words, forget_word, &f, 0);
		return 0;
	}
	word = word_of(base, from >> 6);
	if (!word)
		return 0;
	if (from >> 6 == end >> 6) {
		*word &= ~(((1ULL << (count & 63)) - 1) << (from & 63));
		return 0;
	}
	*word &= (1ULL << (from & 63)) - 1;
	f.block++;
	if ((end >> 6) > f.block)
		bpf_loop((end >> 6) - f.block, forget_word, &f, 0);
	word = word_of(base, end >> 6);
	if (word)
		*word &= ~((1ULL << (end & 63)) - 1);
	return 0;
}

// Where the tag stands behind the last header; 0 if the frame is cut, or a later fragment. `quiet`: hosts say such
// things among themselves.
INLINE __u32 headers_end(void *data, void *end, int *quiet)
{
	__u16 kind;
	__u32 at = 14;
	__u8 protocol;

	if (data + 14 > end)
		return 0;
	*quiet = *(__u8 *)data & 1;
	kind = *(__u16 *)(data + 12);
#pragma unroll
	for (int i = 0; i < MOST_VLANS; i++) {
		if (kind != bpf_htons(0x8100) && kind != bpf_htons(0x88a8) && kind != bpf_htons(0x9100))
			break;
		if (data + at + 4 > end)
			return 0;
		kind = *(__u16 *)(data + at + 2);
		at += 4;
	}
	if (kind == bpf_htons(0x8847) || kind == bpf_htons(0x8848)) {
		__u8 bottom = 0, version;

#pragma unroll
		for (int i = 0; i < MOST_LABELS; i++) {
			if (bottom)
				break;
			if (data + at + 4 > end)
				return 0;
			bottom = *(__u8 *)(data + at + 2) & 1;
			at += 4;
		}
		if (!bottom || data + at + 1 > end)
			return 0;
		version = *(__u8 *)(data + at) >> 4;
		if (version == 4)
			kind = bpf_htons(0x0800);
		else if (version == 6)
			kind = bpf_htons(0x86dd);
		else
			return at;
	}
	if (kind == bpf_htons(0x0800)) {
		__u32 len;

		if (data + at + 20 > end || *(__u16 *)(data + at + 6) & bpf_htons(0x1fff))
			return 0;
		len = (*(__u8 *)(data + at) & 15) * 4;
		protocol = *(__u8 *)(data + at + 9);
		if (len < 20)
			return 0;
		at += len;
	} else if (kind == bpf_htons(0x86dd)) {
		if (data + at + 40 > end)
			return 0;
		protocol = *(__u8 *)(data + at + 6);
		at += 40;
#pragma unroll
		for (int i = 0; i < MOST_EXTENSIONS; i++) {
			if (protocol != 0 && protocol != 43 && protocol != 60 && protocol != 44)
				break;
			if (at > MOST_AT || data + at + 8 > end)
				return 0;
			if (protocol == 44 && *(__u16 *)(data + at + 2) & bpf_htons(0xfff8))
				return 0;
			__u8 next = *(__u8 *)(data + at), more = *(__u8 *)(data + at + 1);

			at += protocol == 44 ? 8 : 8 + more * 8;
			protocol = next;
		}
	} else if (kind == bpf_htons(0x0806)) {
		*quiet = 1;
		return at + 28;
	} else {
		return at;
	}
	if (at > MOST_AT)
		return 0;
	if (protocol == IPPROTO_TCP) {
		__u32 len;

		if (data + at + 13 > end)
			return 0;
		len = (*(__u8 *)(data + at + 12) >> 4) * 4;
		return len < 20 ? 0 : at + len;
	}
	if (protocol == IPPROTO_UDP || protocol == IPPROTO_ICMP)
		return at + 8;
	if (protocol == PROTOCOL_ICMPV6) {
		if (data + at + 1 <= end) {
			__u8 type = *(__u8 *)(data + at);

			// Group membership and neighbour discovery.
			*quiet |= (type >= 130 && type <= 137) || type == 143;
		}
		return at + 8;
	}
	return at;
}

INLINE void smooth(struct flow *f, __u64 variation)
{
	if (variation > JITTER_LIMIT)
		variation = JITTER_LIMIT;
	f->flags |= HAS_JITTER;
	// BPF shifts signed numbers as Rust does.
	f->jitter += ((__s64)(variation << JITTER_FRACTION) - f->jitter) >> 4;
}

// The delay of an original, recorded.
INLINE __s64 measure(struct lane *q, struct flow *f, __u64 tx, __u64 rx)
{
	__u64 delay = rx - tx;

	if (!tx) {
		q->unstamped++;
		f->unmeasured++;
		return NO_DELAY;
	}
	if (tx > rx) {
		__u64 ahead = tx - rx;

		q->clock_errors++;
		f->unmeasured++;
		return -(__s64)(ahead < LARGEST_ADVANCE ? ahead : LARGEST_ADVANCE);
	}
	record(&q->latency, delay);
	f->latency_low += delay;
	f->latency_high += f->latency_low < delay;
	if (delay < f->latency_min)
		f->latency_min = delay;
	if (delay > f->latency_max)
		f->latency_max = delay;
	return delay;
}

// A frame older than the highest number. Returns whether it is an original.
static __noinline int older(struct lane *q, struct flow *f, __u32 base, __u64 sequence)
{
	__u64 age, bit = 1ULL << (sequence & 63), *word;

	if (!q || !f)
		return 0;
	age = f->next - sequence;
	word = word_of(base, sequence >> 6);
	if (age > (__u64)C.words * 64 || !word) {
		q->beyond_window++;
	} else if (!(*word & bit)) {
		*word |= bit;
		f->reordered++;
		q->reordered++;
		if (C.sender_unknown && sequence < f->flags >> HEAD_SHIFT) {
			__u64 lower = (f->flags >> HEAD_SHIFT) - sequence;

			f->flags -= lower << HEAD_SHIFT;
			q->head -= lower;
			q->missing += lower - 1;
		} else {
			q->missing--;
		}
		return 1;
	}
	f->duplicates++;
	q->duplicates++;
	return 0;
}

INLINE void arrive(struct lane *q, struct flow *f, __u32 base, __u32 wire, __u64 tx, __u64 rx, __u32 octets)
{
	__u64 next = f->next, sequence, *word;
	__s64 delay, last = f->last_delay, ahead = (__s32)(wire - (__u32)next);

	q->received++;
	q->octets += octets;
	if (q->first_rx)
		record(&q->inter_arrival, rx > q->last_rx ? rx - q->last_rx : 0);
	else
		q->first_rx = rx;
	if (rx > q->last_rx)
		q->last_rx = rx;
	f->received++;
	f->octets += octets;
	if (rx < f->first_rx)
		f->first_rx = rx;
	if (rx > f->last_rx)
		f->last_rx = rx;

	// Numbers start at 0, so one that would lie before 0 is a leap forward.
	sequence = ahead < 0 && (__u64)-ahead > next ? wire : next + ahead;
	if (sequence >= next) {
		__u64 gap = sequence - next;

		if (gap) {
			forget(base, next, gap);
			if (C.sender_unknown && f->received == 1) {
				f->flags |= sequence << HEAD_SHIFT;
				q->head += gap;
			} else {
				q->missing += gap;
				if (gap > q->largest_gap)
					q->largest_gap = gap;
				if (sequence > q->after_gap)
					q->after_gap = sequence;
			}
		}
		word = word_of(base, sequence >> 6);
		if (word)
			*word |= 1ULL << (sequence & 63);
		f->next = sequence + 1;
		delay = measure(q, f, tx, rx);
		f->last_delay = delay;
		if (last != NO_DELAY && delay != NO_DELAY) {
			__s64 variation = delay - last;
			__u64 amount = variation < 0 ? -(__u64)variation : (__u64)variation;

			if (gap || !(f->flags & LAST_WAS_HIGHEST))
				record(&q->unpaired_jitter, amount);
			else if (variation < 0)
				record(&q->ipdv_below, amount);
			else
				record(&q->ipdv_above, amount);
			smooth(f, amount);
		}
		f->flags |= LAST_WAS_HIGHEST;
	} else {
		if (!older(q, f, base, sequence))
			return;
		delay = measure(q, f, tx, rx);
		f->last_delay = delay;
		f->flags &= ~(__u64)LAST_WAS_HIGHEST;
		if (last != NO_DELAY && delay != NO_DELAY) {
			__s64 variation = delay - last;
			__u64 amount = variation < 0 ? -(__u64)variation : (__u64)variation;

			record(&q->unpaired_jitter, amount);
			smooth(f, amount);
		}
	}
	if (rx > S.drain_since) {
		f->late++;
		q->late++;
	}
}

// The first flow awaited: `range_around` of the traffic engine, with `C.flows` as its count.
INLINE __u32 first_around(__u32 number)
{
	__u64 beside = C.flows / 2, last = (__u64)C.ramp_flow - 1 - C.flows, seen;

	seen = *(volatile __u64 *)&S.seen;
	if (!seen) {
		__sync_val_compare_and_swap(&S.seen, 0, (__u64)number + 1);
		seen = *(volatile __u64 *)&S.seen;
	}
	seen = seen - 1 > beside ? seen - 1 - beside : 0;
	return seen < last ? seen : last;
}

SEC("xdp.frags")
int wb_account(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end, *tag;
	__u32 queue = ctx->rx_queue_index, number, wire, at, octets, base;
	__u64 rx, tx, *stray;
	struct lane *q;
	struct flow *f;
	int quiet = 0;

	// Before all else: what has to be fetched from memory is in no latency.
	rx = bpf_ktime_get_ns();
	if (!*(volatile __u64 *)&S.counts)
		return XDP_PASS;
	rx += S.wall_offset;
	if (rx > S.end)
		return XDP_PASS;
	q = bpf_map_lookup_elem(&lanes, &queue);
	if (!q)
		return XDP_PASS;
	at = headers_end(data, end, &quiet);
	octets = bpf_xdp_get_buff_len(ctx) + 4;
	// As the verifier of Linux 7.2 sees it, 18 bytes from 1000 on may end sooner than 18 bytes after 1000: it knows what
	// `at` is a multiple of, in one of the two.
	if (!at || at > MOST_AT)
		goto other;
	tag = data + at;
	if (tag + TAG_LEN > end || *(__u16 *)tag != bpf_htons(TAG_MAGIC))
		goto untagged;
	number = bpf_ntohl(*(__u32 *)(tag + 2));
	wire = bpf_ntohl(*(__u32 *)(tag + 6));
	tx = bpf_be64_to_cpu(*(__u64 *)(tag + 10));
	if (number == C.ramp_flow) {
		ADD(q->ramp, 1);
		return XDP_DROP;
	}
	// The number after all flows is of no run, so a first frame with it does not say which run to follow.
	if (C.around_first && number == C.ramp_flow - 1) {
		stray = &q->unplanned;
		goto tagged;
	}
	number -= C.around_first ? first_around(number) : C.first_flow;
	if (number >= C.flows) {
		stray = &q->unplanned;
		goto tagged;
	}
	if (tx < *(volatile __u64 *)&S.since) {
		stray = &q->stale;
		goto tagged;
	}
	number += queue * C.flows;
	f = bpf_map_lookup_elem(&flows, &number);
	if (!f)
		goto other;
	base = number * C.words;
	if (C.shared && !take(queue)) {
		ADD(q->dropped, 1);
		return XDP_DROP;
	}
	arrive(q, f, base, wire, tx, rx, octets);
	if (C.shared)
		give_back(q);
	return XDP_DROP;

untagged:
	if (tag + PKTGEN_LEN > end || *(__u32 *)tag != bpf_htonl(PKTGEN_MAGIC))
		goto other;
	stray = &q->pktgen;
tagged:
	// No host says such a thing by itself.
	quiet = 0;
	if (!S.beside_others)
		ADD(*stray, 1);
other:
	if (!quiet && !S.beside_others) {
		ADD(q->foreign, 1);
		ADD(q->foreign_octets, octets);
	}
	return XDP_PASS;
}
