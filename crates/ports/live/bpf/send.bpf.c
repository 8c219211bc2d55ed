// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Writes the frames of streams and redirects them to a port. The kernel runs the program repeatedly on frames that the
// kernel allocates (live frames of BPF_PROG_RUN), in turns of some milliseconds.
//
// The definition of a stream is fixed when the program is loaded. It is in constants, so the verifier removes the code
// that a stream does not need. All variable data is in one state, which user space reads and writes between turns.
// Several streams are loaded as separate programs that share the state. `wb_choose` runs before them, finds the stream
// with the earliest due frame and calls its program.
//
// A recycled frame contains whatever the device under test wrote into it. So the program rewrites the whole header of
// each frame and computes checksums from sums, never from the frame.

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define MOST_FIELDS 12
#define MOST_HEADER 128
#define MOST_STREAMS 64
#define RING 256
#define INLINE static __always_inline

// These values and the layout of the structures match `sender.rs`.
#define VALUES_DIGIT 0
#define VALUES_UP 1
#define VALUES_DOWN 2
#define VALUES_RANDOM 3
#define VALUES_LIST 4

#define TAG_WIREBENCH 0
#define TAG_PKTGEN 1
#define TAG_PKTGEN_MICROS 2
#define TAG_PKTGEN_NANOS 3

#define HALT_LATE 1
#define HALT_DOWN 2
#define HALT_GONE 4
#define HALT_BROKEN 8

#define ENXIO 6
#define ENETDOWN 100

// The program itself waits for a frame that is due within this time, in small steps.
#define SPIN_NS 300000
#define SPINS 48
// A single awaited frame is written this long before it is due, except for the timestamp, because the time that writing
// takes varies. The rest of the wait takes at most LEADS readings of the clock.
#define LEAD_NS 250
#define LEADS 64
// The end of the wait is timed by multiplications of about 1 ns each: reading the clock takes 20 to 40 ns.
#define FINE_NS 64
#define READING_NS 20
// A longer gap between two readings of the clock counts as a stall.
#define LATE_NS 1000000
// Number of frames that share a reading of the clock at full speed. A reading costs as much as all other work for a
// frame, and frames that are handed over together leave together a moment later.
#define STAMPED_TOGETHER 4

struct field {
	__u32 at;
	__u8 width;
	__u8 shift;
	__u8 odd;
	__u8 kind;
	__u64 mask;
	__u64 ip;
	__u64 l4;
	__u64 first;
	__u64 step;
	__u64 values;
	__u64 advance;
	__u32 digit;
	__u32 list;
};

struct settings {
	__u32 header_len;
	__u32 templates;
	__u32 order_len;
	__u32 order_advance;
	__u32 fields;
	__u32 tag_at;
	__u32 ip_checksum;
	__u32 l4_checksum;
	__u32 udp;
	__u32 paced;
	__u32 first_flow;
	__u32 worker;
	__u32 workers;
	__u32 flows;
	__u32 moves;
	__u32 one_flow;
	// Index of this stream, number of streams, and offset of its flows among all flows.
	__u32 lane;
	__u32 streams;
	__u32 flows_at;
	// Bytes that other streams write, from the start of the frame.
	__u32 fill;
	// Length of the frames that the kernel allocates; each frame of a stream is shorter.
	__u32 frame_len;
	__u32 tag;
	// First sequence number of the pktgen tag.
	__u32 first;
	// Number of times that each frame is sent, and number of frames that are due together.
	__u32 copies;
	__u32 burst;
	__u32 order_drawn;
	__u64 order_stride;
	__u32 home[4];
	__u32 step[4];
	__u32 radix[4];
	struct field field[MOST_FIELDS];
};

const volatile struct settings C = {};

// Variable data of one stream.
struct lane {
	// Input of each turn.
	__u64 paced;
	__u64 due;
	__u64 rest;
	__u64 whole;
	__u64 part;
	__u64 parts;
	__u64 carry;
	__u64 left;
	__u64 until;
	__u64 allowance;
	// Counters.
	__u64 submitted;
	__u64 octets;
	__u64 refused;
	__u64 refused_octets;
	__u64 largest_late;
	__u64 round;
	// State of the random generator, if the order of templates is random.
	__u64 order_state;
	// Time at which the next frame was made.
	__u64 made;
	// Frame that is sent more than once: the time at which it was made, its number and the copies left.
	__u64 stamp;
	__u32 sequence;
	__u32 copies;
	// Frames that are due together with the last one.
	__u32 burst;
	__u32 pad;
	__u32 flow;
	__u32 order_at;
	__u32 digit[4];
	// Positions of fields, or states of their random generators.
	__u64 at[MOST_FIELDS];
};

struct state {
	// Set by another thread of user space to end a turn.
	__u64 stop;
	// Input of each turn.
	__u64 spin;
	__u64 left;
	__u64 turn_until;
	__u64 wall_offset;
	// Output. `halt` is the reason why the program cannot continue.
	__u64 halt;
	__u64 full;
	__u64 last_departure;
	__u64 seen;
	__u64 stalls;
	__u64 stalled_ns;
	__u64 largest_gap;
	// Time for which nothing was due, and the start of the current such period.
	__u64 idle;
	__u64 idle_since;
	// Stream of the next frame, and the time.
	__u64 chosen;
	__u64 now;
	__s32 error;
	__u32 cpu;
	// Frames handed to the device with an unknown outcome: flow, stream and size of each.
	__u64 head;
	__u64 tail;
	__u64 ring[RING];
	struct lane lane[MOST_STREAMS];
};

struct state S = {};

struct template {
	__u32 len;
	__u32 ip_sum;
	__u32 l4_sum;
	__u32 pad;
	__u64 header[MOST_HEADER / 8];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct template);
} templates SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} order SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lists SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} refused SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} port SEC(".maps");

// Programs of the streams, if there are several.
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, MOST_STREAMS);
	__type(key, __u32);
	__type(value, __u32);
} makers SEC(".maps");

char _license[] SEC("license") = "Dual MIT/GPL";

// Volatile: another thread writes `stop`, and the tracepoint program writes `halt`.
INLINE int halted(void)
{
	return *(volatile __u64 *)&S.stop || *(volatile __u64 *)&S.halt;
}

// Ends an iteration without a frame. The clock reading shows that the CPU was not away meanwhile.
INLINE int idle(void)
{
	S.seen = bpf_ktime_get_ns();
	return XDP_DROP;
}

INLINE __u16 checksum(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

// SplitMix64, and its number times `values` divided by 2^64.
INLINE __u64 random_below(__u64 *state, __u64 stride, __u64 values)
{
	__u64 z = *state += stride;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	z ^= z >> 31;
	return ((z >> 32) * values + (((z & 0xffffffff) * values) >> 32)) >> 32;
}

INLINE __u64 position(__u64 *at, __u64 advance, __u64 values)
{
	__u64 now = *at, next = now + advance;

	*at = next >= values ? next - values : next;
	return now;
}

INLINE __u64 value_of(const volatile struct field *f, const struct lane *l, __u64 *at)
{
	switch (f->kind) {
	case VALUES_DIGIT:
		return f->first + l->digit[f->digit & 3];
	case VALUES_UP:
		return f->first + position(at, f->advance, f->values) * f->step;
	case VALUES_DOWN:
		return f->first - position(at, f->advance, f->values) * f->step;
	case VALUES_RANDOM:
		return f->first + random_below(at, f->advance, f->values) * f->step;
	default: {
		__u32 place = f->list + (__u32)position(at, f->advance, f->values);
		__u64 *value = bpf_map_lookup_elem(&lists, &place);

		return value ? *value : 0;
	}
	}
}

// The header was just written with 0 in all bits that fields write.
INLINE void put(void *at, __u8 width, __u64 word)
{
	switch (width) {
	case 1:
		*(__u8 *)at |= (__u8)word;
		break;
	case 2:
		*(__u16 *)at |= bpf_htons((__u16)word);
		break;
	case 4:
		*(__u32 *)at |= bpf_htonl((__u32)word);
		break;
	case 6:
		*(__u16 *)at |= bpf_htons((__u16)(word >> 32));
		*(__u32 *)(at + 2) |= bpf_htonl((__u32)word);
		break;
	default:
		*(__u64 *)at |= bpf_cpu_to_be64(word);
	}
}

INLINE void next_flow(struct lane *l)
{
	__u32 flow = l->flow + C.workers, carry = 0;

	if (C.flows == 1) {
		l->round++;
		return;
	}
	if (flow >= C.flows) {
		l->flow = C.worker;
		l->round++;
		if (C.moves) {
			l->digit[0] = C.home[0];
			l->digit[1] = C.home[1];
			l->digit[2] = C.home[2];
			l->digit[3] = C.home[3];
		}
		return;
	}
	l->flow = flow;
	if (!C.moves)
		return;
#pragma unroll
	for (int i = 0; i < 4; i++) {
		__u32 digit = l->digit[i] + C.step[i] + carry;

		carry = digit >= C.radix[i];
		l->digit[i] = carry ? digit - C.radix[i] : digit;
	}
}

// Sets the time of the last clock reading, and counts a stall if the previous reading is too old.
INLINE void see(__u64 now)
{
	__u64 gap = now - S.seen;

	// A step back, as between CPUs with slightly different clocks, is not a stall.
	if (gap > LATE_NS && (__s64)gap > 0) {
		S.stalls++;
		S.stalled_ns += gap;
		if (gap > S.largest_gap)
			S.largest_gap = gap;
	}
	S.seen = now;
}

// Returns the time if a frame of this stream is due now or within `lead`, and 0 otherwise. Waits if a frame is due
// soon.
INLINE __u64 due_now(struct lane *l, int paced, __u64 lead, __u64 *due)
{
	__u64 now, late = 0;

	if (!paced && C.streams == 1 && C.tag == TAG_WIREBENCH && ((S.head - S.tail) & (STAMPED_TOGETHER - 1)))
		return S.seen;
	now = bpf_ktime_get_ns();
	see(now);
	if (now >= S.turn_until)
		return 0;
	if (now >= l->until) {
		l->left = 0;
		return 0;
	}
	if (!paced) {
		// If there are several streams, the one that has waited longest is next.
		l->due = now;
		return now;
	}
	if (C.burst > 1 && l->burst)
		return now;
	if (now + lead < l->due) {
		if (!S.idle_since)
			S.idle_since = now;
		if (!S.spin || l->due - now > SPIN_NS)
			return 0;
		for (int i = 0; i < SPINS; i++) {
			now = bpf_ktime_get_ns();
			if (now + lead >= l->due)
				break;
		}
		see(now);
		if (now + lead < l->due || now >= l->until)
			return 0;
	}
	if (S.idle_since) {
		S.idle += now - S.idle_since;
		S.idle_since = 0;
	}
	if (due)
		*due = l->due;
	if (now > l->due)
		late = now - l->due;
	if (late > l->allowance) {
		S.halt |= HALT_LATE;
		return 0;
	}
	l->due += l->whole;
	l->rest += l->part;
	if (l->rest >= l->parts) {
		l->rest -= l->parts;
		l->due += l->carry;
	}
	if (late > l->largest_late)
		l->largest_late = late;
	if (C.burst > 1)
		l->burst = C.burst;
	return now;
}

// Waits for the rest of the time until a frame is due, as exactly as possible.
INLINE __u64 wait_for(struct lane *l, __u64 due)
{
	__u64 now = 0, left, product = due | 1;

	for (int i = 0; i < LEADS; i++) {
		now = bpf_ktime_get_ns();
		if (now + FINE_NS >= due)
			break;
	}
	if (now + READING_NS < due) {
		left = due - now - READING_NS;
#pragma nounroll
		for (__u64 i = 0; i < FINE_NS; i++) {
			if (i >= left)
				break;
			product *= 0x9e3779b97f4a7c15ULL;
			asm volatile("" : "+r"(product));
		}
		now = bpf_ktime_get_ns();
	}
	see(now);
	if (now > due && now - due > l->largest_late)
		l->largest_late = now - due;
	return now;
}

// Finds the stream with the earliest due frame and calls its program.
SEC("xdp")
int wb_choose(struct xdp_md *ctx)
{
	__u64 soonest = ~0ULL;
	__u32 lane;

	if (halted() || !S.left || !S.turn_until)
		return idle();
	for (__u32 i = 0; i < MOST_STREAMS && i < C.streams; i++) {
		struct lane *l = &S.lane[i];

		if (l->left && l->due < soonest) {
			soonest = l->due;
			// Not in a register, because the verifier would follow each possible value to the end.
			*(volatile __u64 *)&S.chosen = i;
		}
	}
	if (soonest == ~0ULL) {
		S.turn_until = 0;
		return XDP_DROP;
	}
	lane = *(volatile __u64 *)&S.chosen & (MOST_STREAMS - 1);
	S.now = due_now(&S.lane[lane], S.lane[lane].paced, 0, 0);
	if (!S.now)
		return XDP_DROP;
	bpf_tail_call(ctx, &makers, lane);
	S.halt |= HALT_BROKEN;
	return XDP_DROP;
}

// Writes the bytes after the header, up to the end of the longest header of all streams. Global, so that the verifier
// checks it separately: a frame may end after any byte.
__attribute__((noinline)) int fill(struct xdp_md *ctx, __u32 which)
{
	struct template *t = bpf_map_lookup_elem(&templates, &which);
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (!t)
		return 0;
	for (__u32 i = 0; i < MOST_HEADER; i++) {
		if (i >= C.fill || data + i + 1 > end)
			break;
		((__u8 *)data)[i] = ((__u8 *)t->header)[i];
	}
	return 0;
}

SEC("xdp")
int wb_send(struct xdp_md *ctx)
{
	void *data, *end, *tag;
	struct lane *l = &S.lane[C.lane & (MOST_STREAMS - 1)];
	struct template *t;
	// A local, because each mention of a volatile setting is a load.
	__u32 header_len = C.header_len, which = 0, len;
	__u64 now, ip, l4, due = 0;
	// True if the frame is made before it is due.
	int ahead = C.paced && C.streams == 1 && C.copies <= 1 && C.burst <= 1;
	int act, last = 1;

	if (C.streams > 1) {
		now = S.now;
	} else {
		if (halted() || !S.left || !l->left || !S.turn_until)
			return idle();
		now = due_now(l, C.paced, ahead && S.spin ? LEAD_NS : 0, &due);
	}
	if (!now)
		return XDP_DROP;

	if (C.copies > 1) {
		if (!l->copies) {
			l->copies = C.copies;
			l->sequence = C.first + l->submitted;
			l->stamp = l->made ? l->made : now;
		}
		last = l->copies == 1;
	}
	if (C.order_drawn) {
		__u64 state = l->order_state;
		__u32 at = random_below(&state, C.order_stride, C.order_len), *place;

		place = bpf_map_lookup_elem(&order, &at);
		if (place)
			which = *place;
		if (last)
			l->order_state = state;
	} else if (C.order_len) {
		__u32 at = l->order_at, next = at + C.order_advance, *place;

		place = bpf_map_lookup_elem(&order, &at);
		if (place)
			which = *place;
		if (last)
			l->order_at = next >= C.order_len ? next - C.order_len : next;
	}
	t = bpf_map_lookup_elem(&templates, &which);
	if (!t)
		goto broken;
	len = t->len;
	// The kernel restores a recycled frame only if the program changed its bounds. Each template is shorter than
	// the frames that the kernel allocates, so this call always changes them, and a length that a device changed is
	// reset.
	if (bpf_xdp_adjust_tail(ctx, (int)len - (int)C.frame_len))
		goto broken;
	if (C.fill > C.header_len)
		fill(ctx, which);
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (header_len > MOST_HEADER || data + header_len > end)
		goto broken;
#pragma unroll
	for (int i = 0; i < MOST_HEADER / 8; i++)
		if (header_len >= 8 * (i + 1))
			((__u64 *)data)[i] = t->header[i];
#pragma unroll
	for (int i = 0; i < MOST_HEADER / 8; i++) {
		__u32 rest = header_len - 8 * i;
		const void *from = &t->header[i];

		if (header_len <= 8 * i || rest >= 8)
			continue;
		if (rest & 4)
			*(__u32 *)(data + 8 * i) = *(__u32 *)from;
		if (rest & 2)
			*(__u16 *)(data + 8 * i + (rest & 4)) = *(__u16 *)(from + (rest & 4));
		if (rest & 1)
			*(__u8 *)(data + 8 * i + (rest & 6)) = *(__u8 *)(from + (rest & 6));
	}
	ip = t->ip_sum;
	l4 = t->l4_sum;
#pragma unroll
	for (int i = 0; i < MOST_FIELDS; i++) {
		const volatile struct field *f = &C.field[i];
		__u64 word, at, ip_mask, l4_mask;
		__u32 place;
		__u8 width, odd;

		if (i >= C.fields)
			break;
		place = f->at;
		width = f->width;
		odd = f->odd;
		ip_mask = f->ip;
		l4_mask = f->l4;
		if (place > MOST_HEADER - 8 || data + place + width > end)
			goto broken;
		at = l->at[i];
		word = (value_of(f, l, &at) << f->shift) & f->mask;
		if (last)
			l->at[i] = at;
		// Layer-2 addresses have 48 bits and are in no checksum. IPv6 addresses are written as 64 bits.
		if (ip_mask)
			ip += (word & ip_mask) << odd;
		if (l4_mask && width == 8)
			l4 += ((word & l4_mask) >> 32) + (word & l4_mask & 0xffffffff);
		else if (l4_mask)
			l4 += (word & l4_mask) << odd;
		put(data + place, width, word);
	}
	// Do all work that does not depend on the time before the frame is due.
	tag = data + C.tag_at;
	if (C.tag_at && C.tag != TAG_WIREBENCH) {
		__u32 sequence = C.copies > 1 ? l->sequence : C.first + (__u32)l->submitted;

		if (C.tag_at > MOST_HEADER - 16 || tag + 16 > end)
			goto broken;
		*(__u32 *)(tag + 4) = bpf_htonl(sequence);
		l4 += sequence;
	} else if (C.tag_at) {
		__u32 flow = C.first_flow + (C.one_flow ? 0 : l->flow);
		__u32 sequence = C.one_flow ? l->submitted : l->round;

		if (C.tag_at > MOST_HEADER - 18 || tag + 18 > end)
			goto broken;
		*(__u32 *)(tag + 2) = bpf_htonl(flow);
		*(__u32 *)(tag + 6) = bpf_htonl(sequence);
		l4 += (__u64)flow + sequence;
	}
	if (C.ip_checksum && C.ip_checksum <= MOST_HEADER - 2 && data + C.ip_checksum + 2 <= end)
		*(__u16 *)(data + C.ip_checksum) = bpf_htons(checksum(ip));
	act = bpf_redirect_map(&port, 0, XDP_DROP);
	if (act != XDP_REDIRECT) {
		S.halt |= HALT_GONE;
		return XDP_DROP;
	}
	S.ring[S.head & (RING - 1)] = (__u64)(C.flows_at + l->flow) << 32 | C.lane << 16 | len;
	S.head++;
	S.cpu = bpf_get_smp_processor_id();
	S.left--;
	if (C.copies > 1)
		l->copies--;
	if (C.burst > 1 && l->burst)
		l->burst--;
	l->submitted++;
	l->octets += len + 4;
	l->left--;
	next_flow(l);

	if (ahead && now < due)
		now = wait_for(l, due);
	if (C.tag_at && C.tag == TAG_WIREBENCH) {
		__u64 time = now + S.wall_offset;

		*(__u64 *)(tag + 10) = bpf_cpu_to_be64(time);
		l4 += (time >> 32) + (time & 0xffffffff);
	} else if (C.tag_at && C.tag >= TAG_PKTGEN_MICROS) {
		__u64 made = C.copies > 1 ? l->stamp : l->made ? l->made : now;

		if (C.tag == TAG_PKTGEN_NANOS) {
			*(__u64 *)(tag + 8) = bpf_cpu_to_be64(made);
			l4 += (made >> 32) + (made & 0xffffffff);
		} else {
			__u32 seconds, micros;

			made += S.wall_offset;
			seconds = made / 1000000000;
			// Division by 1000, exact below 2^32.
			micros = (made - seconds * 1000000000ULL) * 274877907 >> 38;
			*(__u32 *)(tag + 8) = bpf_htonl(seconds);
			*(__u32 *)(tag + 12) = bpf_htonl(micros);
			l4 += (__u64)seconds + micros;
		}
		l->made = now;
	}
	if (C.l4_checksum && C.l4_checksum <= MOST_HEADER - 2 && data + C.l4_checksum + 2 <= end) {
		__u16 sum = checksum(l4);

		if (C.udp && !sum)
			sum = 0xffff;
		*(__u16 *)(data + C.l4_checksum) = bpf_htons(sum);
	}
	S.last_departure = now;
	return act;

broken:
	S.halt |= HALT_BROKEN;
	return XDP_DROP;
}

INLINE void refuse(__u64 frame)
{
	__u32 flow = frame >> 32;
	__u64 *count = bpf_map_lookup_elem(&refused, &flow);
	struct lane *l = &S.lane[(frame >> 16) & (MOST_STREAMS - 1)];

	if (count)
		*count += 1;
	l->refused++;
	l->refused_octets += (frame & 0xffff) + 4;
}

// This CPU hands frames to the device in order, and nothing else runs between the frames of a batch. So the frames in
// flight are those of this program.
INLINE int ours(void)
{
	return S.head != S.tail && bpf_get_smp_processor_id() == S.cpu;
}

SEC("raw_tp/xdp_devmap_xmit")
int wb_handed_over(struct bpf_raw_tracepoint_args *ctx)
{
	int sent = ctx->args[2], drops = ctx->args[3], error = ctx->args[4];

	if (!ours())
		return 0;
	if (sent > 0)
		S.tail += sent;
	if (drops <= 0)
		return 0;
	// A device that takes some of the frames is full. A device that takes none may have another reason.
	if (error < 0) {
		S.error = error;
		if (error == -ENXIO || error == -ENETDOWN)
			S.halt |= HALT_DOWN;
	} else {
		S.full++;
	}
	for (int i = 0; i < RING; i++) {
		if (i >= drops || S.tail == S.head)
			break;
		refuse(S.ring[S.tail & (RING - 1)]);
		S.tail++;
	}
	return 0;
}

// The last frame was not queued with the others.
SEC("raw_tp/xdp_redirect_err")
int wb_not_handed_over(struct bpf_raw_tracepoint_args *ctx)
{
	int error = ctx->args[3];

	if (!ours())
		return 0;
	S.error = error;
	S.halt |= error == -ENETDOWN || error == -ENXIO ? HALT_DOWN : HALT_BROKEN;
	S.head--;
	refuse(S.ring[S.head & (RING - 1)]);
	return 0;
}
