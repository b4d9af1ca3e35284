/* The relay: one process that is the whole network between N hosts.
 *
 * Each host is a network namespace with one TUN device. The relay holds the other end of every device and moves IPv4
 * packets between them. A packet passes, in this order,
 *
 *     the egress gate of its source       the host's limit out, shared by all its flows
 *     the gate of its link                the link's own limit, mostly none
 *     the wire of its link                the one-way latency
 *     the ingress gate of its destination the host's limit in, shared by all flows to it
 *
 * A gate sends bytes at a rate, in order of arrival, but for small packets of flows that have nothing waiting its turn:
 * those go first, as under the fair queueing (fq_codel) of common hosts. So a ping shows the latency and not the length
 * of the queue, and so does the acknowledgement of data that comes in while others go out. A gate whose backlog is over its limit drops what arrives (drop-tail). Rates and latencies come from the
 * phase in force.
 *
 * Every time in a gate or wire is an ideal time: computed from the packet's arrival and the state, never from the
 * clock at which the relay came round to it. So a late wake-up delays the packets then due, but neither rate nor
 * latency drifts. How late each packet really left is recorded, and so is a heartbeat of one per millisecond, which
 * shows a stall even when no packet was due.
 *
 * Usage: relay OWNER_PID DEVICE FIRST_ADDRESS NUM_HOSTS NAMESPACE... SWEEP_COMMAND...
 * Host i has address FIRST_ADDRESS + i. Commands come on stdin, one a line, and are answered on stdout:
 *
 *     phase DURATION_NS                     a new phase; the next lines describe it
 *     host I BYTES_PER_SECOND               the egress and ingress rate of host I
 *     link I J LATENCY_NS BYTES_PER_SECOND  the link from I to J; rate 0 is unlimited
 *     ready hold|repeat                     the schedule is complete; phase 0 is put in force     -> ready SCHEDULING
 *     begin                                 start the schedule's clock, clear the statistics      -> begun MONOTONIC_NS
 *     report                                                                                      -> a line of JSON
 *     quit                                                                                        -> the process exits
 *
 * When the owner is gone without `quit`, the relay becomes SWEEP_COMMAND, which removes what the owner left behind.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MAX_HOSTS 32
#define NEVER INT64_MAX
#define MILLISECOND INT64_C(1000000)
#define SECOND INT64_C(1000000000)

/* What may wait at a gate. Kernels do not hold senders back at a TUN device as they do at a real one, so a gate has to
 * take in whole windows of TCP: were it to drop them, retransmission timeouts of 200 ms and reduced windows would
 * stand where latency and bandwidth should. */
#define BACKLOG_LIMIT_BYTES (64 << 20)

/* Packets up to this size may go first: fq_codel's quantum, about one Ethernet packet. */
#define SMALL_PACKET_BYTES 1514
/* Flows are told apart by a hash; two that share one are treated as one. */
#define FLOWS 1024

#define READS_PER_TURN 16
#define HEARTBEAT_NS MILLISECOND
#define LATE_NS MILLISECOND
#define OWNER_EXIT_TIMEOUT_MS 5000

/* ---- small things ------------------------------------------------------------------------------------------------ */

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (!memory) fail("out of memory");
    return memory;
}

/* ---- packets: slots of three sizes, kept in free lists and never given back -------------------------------------- */

typedef struct Packet {
    struct Packet *next;
    int64_t time;   /* when it arrived at the gate where it waits its turn; else when it leaves where it is */
    int64_t spread; /* from its first byte to its last, at the slowest gate so far */
    int32_t size;   /* bytes of IP, what is paced and counted */
    int16_t source, destination;
    uint16_t flow;
    int16_t slot_class;
    unsigned char frame[]; /* virtio_net_hdr (checksum and segmentation still to be done), then the IP packet */
} Packet;

typedef struct {
    Packet *head, *tail;
} Queue;

static void append(Queue *queue, Packet *packet) {
    packet->next = NULL;
    if (queue->head) queue->tail->next = packet;
    else queue->head = packet;
    queue->tail = packet;
}

static Packet *take_first(Queue *queue) {
    Packet *packet = queue->head;
    queue->head = packet->next;
    return packet;
}

#define FRAME_HEADER ((int)sizeof(struct virtio_net_hdr))
#define SLOT_CLASSES 3
static const int SLOT_FRAME[SLOT_CLASSES] = {2048, 16384, 65536 + 256};
#define SLOTS_PER_CHUNK 64
static Packet *free_slots[SLOT_CLASSES];

static Packet *take_slot(int slot_class) {
    if (!free_slots[slot_class]) {
        size_t stride = sizeof(Packet) + (size_t)SLOT_FRAME[slot_class];
        char *chunk = mmap(NULL, stride * SLOTS_PER_CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (chunk == MAP_FAILED) fail("out of memory for packets");
        for (int i = 0; i < SLOTS_PER_CHUNK; i++) {
            Packet *packet = (Packet *)(chunk + stride * (size_t)i);
            packet->slot_class = (int16_t)slot_class;
            packet->next = free_slots[slot_class];
            free_slots[slot_class] = packet;
        }
    }
    Packet *packet = free_slots[slot_class];
    free_slots[slot_class] = packet->next;
    return packet;
}

static void give_back(Packet *packet) {
    packet->next = free_slots[packet->slot_class];
    free_slots[packet->slot_class] = packet;
}

/* ---- lag: how late the relay was --------------------------------------------------------------------------------- */

#define LAG_BUCKET_NS 10000
#define LAG_BUCKETS 2000

typedef struct {
    uint64_t buckets[LAG_BUCKETS]; /* of 10 us; the last holds everything beyond */
    uint64_t samples, late;
    int64_t max;
} Lag;

static Lag packet_lag, heartbeat_lag;

static void record_lag(Lag *lag, int64_t nanoseconds) {
    lag->buckets[min64(nanoseconds / LAG_BUCKET_NS, LAG_BUCKETS - 1)]++;
    lag->samples++;
    lag->late += nanoseconds > LATE_NS;
    lag->max = max64(lag->max, nanoseconds);
}

/* The upper edge of the bucket that holds the quantile, in ns. */
static int64_t lag_quantile(const Lag *lag, double quantile) {
    uint64_t below = 0;
    for (int i = 0; i < LAG_BUCKETS - 1; i++) {
        below += lag->buckets[i];
        if ((double)below < quantile * (double)lag->samples) continue;
        return min64((i + 1) * (int64_t)LAG_BUCKET_NS, lag->max);
    }
    return lag->max;
}

/* ---- stations: gates and wires ----------------------------------------------------------------------------------- */

typedef struct {
    double ns_per_byte; /* 0: unlimited */
    Queue waiting;           /* in turn; the head is being sent, and its time is when it will have been */
    Queue small;             /* those that go first; their times are when they will have been sent */
    int64_t free_at;         /* when the last packet that waited its turn had been sent */
    int64_t small_until;     /* when the last of those that go first will have been sent */
    int64_t backlog;         /* bytes in both queues */
    uint16_t in_turn[FLOWS]; /* packets of each flow that wait their turn */
} Gate;

typedef struct {
    int64_t latency;
    int64_t last_due; /* order is kept when the latency falls, as on a real path */
    Queue travelling;
} Wire;

typedef struct {
    uint64_t sent_packets, sent_bytes, received_packets, received_bytes;
    uint64_t dropped_egress, dropped_link, dropped_ingress, unroutable;
} Counters;

static int num_hosts;
static uint32_t first_address;
static int tun[MAX_HOSTS];
static Counters counters[MAX_HOSTS];

/* Stations are numbered: N egress gates, N ingress gates, N*N link gates, N*N wires. */
static int num_gates, num_stations;
static Gate *gates;
static Wire *wires;
static int64_t *next_time; /* of each station, NEVER when empty: the loop searches it every event, so it lies compact */

static int egress_of(int host) { return host; }
static int ingress_of(int host) { return num_hosts + host; }
static int link_of(int source, int destination) { return (2 + source) * num_hosts + destination; }
static int wire_of(int source, int destination) { return num_gates + source * num_hosts + destination; }

static int64_t head_time(const Queue *queue) { return queue->head ? queue->head->time : NEVER; }

static void note_next_of_gate(int index) {
    next_time[index] = min64(head_time(&gates[index].waiting), head_time(&gates[index].small));
}

/* Begin to send the head of the queue.
 *
 * Bytes are passed on as they come (a cut-through switch), so that a packet's own length costs time once, at its
 * slowest gate, and not once a gate: one message takes latency + size/rate, however large the packets are. */
static void begin_sending(Gate *gate) {
    Packet *packet = gate->waiting.head;
    int64_t duration = (int64_t)(packet->size * gate->ns_per_byte);
    int64_t start = max64(packet->time - packet->spread, gate->free_at);
    packet->time = max64(packet->time, start + duration);
    packet->spread = max64(packet->spread, duration);
}

/* Send a small packet at once: what is being sent pauses meanwhile. */
static void send_first(Gate *gate, Packet *packet, int64_t arrival) {
    int64_t duration = (int64_t)(packet->size * gate->ns_per_byte);
    int64_t start = max64(arrival - packet->spread, gate->small_until);
    packet->time = gate->small_until = max64(arrival, start + duration);
    packet->spread = max64(packet->spread, duration);
    append(&gate->small, packet);
    if (gate->waiting.head) gate->waiting.head->time += duration;
    else gate->free_at = max64(gate->free_at, packet->time);
}

/* Take in a packet whose last byte arrives at `arrival`; false when the backlog is over the limit. */
static bool enter_gate(int index, Packet *packet, int64_t arrival) {
    Gate *gate = &gates[index];
    if (gate->backlog + packet->size > BACKLOG_LIMIT_BYTES) return false;
    gate->backlog += packet->size;
    if (packet->size <= SMALL_PACKET_BYTES && gate->in_turn[packet->flow] == 0) {
        send_first(gate, packet, arrival);
    } else {
        packet->time = arrival;
        append(&gate->waiting, packet);
        if (gate->waiting.head == packet) begin_sending(gate);
        gate->in_turn[packet->flow]++;
    }
    note_next_of_gate(index);
    return true;
}

static Packet *leave_gate(int index) {
    Gate *gate = &gates[index];
    Packet *packet;
    if (head_time(&gate->small) <= head_time(&gate->waiting)) {
        packet = take_first(&gate->small);
    } else {
        packet = take_first(&gate->waiting);
        gate->free_at = packet->time;
        gate->in_turn[packet->flow]--;
        if (gate->waiting.head) begin_sending(gate);
    }
    gate->backlog -= packet->size;
    note_next_of_gate(index);
    return packet;
}

static void enter_wire(int index, Packet *packet, int64_t arrival) {
    Wire *wire = &wires[index - num_gates];
    packet->time = wire->last_due = max64(arrival + wire->latency, wire->last_due);
    append(&wire->travelling, packet);
    next_time[index] = head_time(&wire->travelling);
}

static Packet *leave_wire(int index) {
    Wire *wire = &wires[index - num_gates];
    Packet *packet = take_first(&wire->travelling);
    next_time[index] = head_time(&wire->travelling);
    return packet;
}

/* A point in time after `when`, moved to where it is when what is left takes `stretch` times as long. */
static int64_t stretched(int64_t time, int64_t when, double stretch) {
    return time > when ? when + (int64_t)((double)(time - when) * stretch) : time;
}

/* From `when` on a gate sends at another rate, what is being sent included. */
static void change_rate(int index, double ns_per_byte, int64_t when) {
    Gate *gate = &gates[index];
    double stretch = gate->ns_per_byte > 0 ? ns_per_byte / gate->ns_per_byte : 1;
    gate->ns_per_byte = ns_per_byte;
    if (gate->waiting.head) gate->waiting.head->time = stretched(gate->waiting.head->time, when, stretch);
    for (Packet *packet = gate->small.head; packet; packet = packet->next)
        packet->time = stretched(packet->time, when, stretch);
    gate->free_at = stretched(gate->free_at, when, stretch);
    gate->small_until = stretched(gate->small_until, when, stretch);
    note_next_of_gate(index);
}

static int earliest_station(void) {
    int earliest = 0;
    for (int i = 1; i < num_stations; i++)
        if (next_time[i] < next_time[earliest]) earliest = i;
    return earliest;
}

/* ---- a packet's way ---------------------------------------------------------------------------------------------- */

static void deliver(Packet *packet) {
    Counters *host = &counters[packet->destination];
    if (write(tun[packet->destination], packet->frame, (size_t)(packet->size + FRAME_HEADER)) < 0) {
        host->dropped_ingress++;
    } else {
        host->received_packets++;
        host->received_bytes += (uint64_t)packet->size;
    }
    record_lag(&packet_lag, max64(0, now_ns() - packet->time));
    give_back(packet);
}

static void enter_or_drop(int gate, Packet *packet, int64_t arrival, uint64_t *dropped) {
    if (enter_gate(gate, packet, arrival)) return;
    ++*dropped;
    give_back(packet);
}

/* Move on the packet at a station whose time has come. */
static void move_on(int station) {
    if (station >= num_gates) { /* a wire */
        Packet *packet = leave_wire(station);
        int host = packet->destination;
        enter_or_drop(ingress_of(host), packet, packet->time, &counters[host].dropped_ingress);
        return;
    }
    Packet *packet = leave_gate(station);
    if (station == egress_of(packet->source)) {
        int link = link_of(packet->source, packet->destination);
        enter_or_drop(link, packet, packet->time, &counters[packet->source].dropped_link);
    } else if (station == ingress_of(packet->destination)) {
        deliver(packet);
    } else {
        enter_wire(wire_of(packet->source, packet->destination), packet, packet->time);
    }
}

/* Do everything due by `now`; returns when the next thing is due. */
static int64_t move_all(int64_t now) {
    int station = earliest_station();
    while (next_time[station] <= now) {
        move_on(station);
        station = earliest_station();
    }
    return next_time[station];
}

static uint32_t address_at(const unsigned char *ip, int offset) {
    uint32_t address;
    memcpy(&address, ip + offset, sizeof address);
    return ntohl(address);
}

/* The host a packet is for; -1 when there is none. */
static int destination_of(const unsigned char *ip, int size, int source) {
    if (size < 20 || ip[0] >> 4 != 4) return -1;
    uint32_t host = address_at(ip, 16) - first_address;
    return host < (uint32_t)num_hosts && (int)host != source ? (int)host : -1;
}

/* Protocol, addresses and ports, hashed (Knuth's multiplicative hash). A fragment has no ports where they would be: it
 * may then count as another flow than its neighbours, and only go first if it is small and nothing of its own waits. */
static uint16_t flow_of(const unsigned char *ip, int size) {
    int header = (ip[0] & 15) * 4;
    uint32_t key = ip[9] ^ (address_at(ip, 12) * 31) ^ (address_at(ip, 16) * 131);
    if (size >= header + 4 && (ip[9] == 6 || ip[9] == 17)) key ^= address_at(ip, header);
    return (uint16_t)((key * UINT32_C(2654435761)) >> 22);
}

/* Keep a small packet in a small slot, so that it does not hold a large one while it waits. */
static Packet *fitted(Packet *packet, ssize_t length) {
    for (int i = 0; i < SLOT_CLASSES - 1; i++) {
        if (length > SLOT_FRAME[i]) continue;
        Packet *small = take_slot(i);
        memcpy(small->frame, packet->frame, (size_t)length);
        give_back(packet);
        return small;
    }
    return packet;
}

/* Read one packet that a host sends; false when there is none. */
static bool accept_packet(int source) {
    Packet *packet = take_slot(SLOT_CLASSES - 1);
    ssize_t length = read(tun[source], packet->frame, (size_t)SLOT_FRAME[SLOT_CLASSES - 1]);
    if (length <= FRAME_HEADER) {
        give_back(packet);
        bool nothing_there = length >= 0 || errno == EAGAIN || errno == EINTR || errno == EIO; /* EIO: not yet up */
        if (!nothing_there) fail("reading the TUN device of host %d: %s", source, strerror(errno));
        return false;
    }
    int64_t arrival = now_ns();
    packet = fitted(packet, length);
    packet->size = (int32_t)length - FRAME_HEADER;
    packet->spread = 0;
    const unsigned char *ip = packet->frame + FRAME_HEADER;
    int destination = destination_of(ip, packet->size, source);
    counters[source].sent_packets++;
    counters[source].sent_bytes += (uint64_t)packet->size;
    if (destination < 0) {
        counters[source].unroutable++;
        give_back(packet);
        return true;
    }
    packet->source = (int16_t)source;
    packet->destination = (int16_t)destination;
    packet->flow = flow_of(ip, packet->size);
    move_all(arrival); /* the gate's state is to be that of the arrival */
    enter_or_drop(egress_of(source), packet, arrival, &counters[source].dropped_egress);
    return true;
}

/* ---- the schedule ------------------------------------------------------------------------------------------------ */

typedef struct {
    int64_t latency;
    double ns_per_byte;
} Link;

typedef struct {
    int64_t duration;
    double *host_ns_per_byte; /* [num_hosts] */
    Link *links;              /* [num_hosts][num_hosts] */
} Phase;

static Phase *phases;
static int num_phases, current_phase;
static bool repeats;
static int64_t phase_end = NEVER;

static double ns_per_byte(double bytes_per_second) { return bytes_per_second > 0 ? 1e9 / bytes_per_second : 0; }

static void put_in_force(int index, int64_t when) {
    const Phase *phase = &phases[index];
    current_phase = index;
    for (int i = 0; i < num_hosts; i++) {
        change_rate(egress_of(i), phase->host_ns_per_byte[i], when);
        change_rate(ingress_of(i), phase->host_ns_per_byte[i], when);
        for (int j = 0; j < num_hosts; j++) {
            const Link *link = &phase->links[i * num_hosts + j];
            change_rate(link_of(i, j), link->ns_per_byte, when);
            wires[wire_of(i, j) - num_gates].latency = link->latency; /* what is under way keeps its time of arrival */
        }
    }
}

static void advance_schedule(int64_t now) {
    while (phase_end <= now) {
        int next = current_phase + 1;
        if (next == num_phases && !repeats) {
            phase_end = NEVER; /* the last phase holds */
            return;
        }
        put_in_force(next % num_phases, phase_end);
        phase_end += phases[current_phase].duration;
    }
}

/* ---- commands ---------------------------------------------------------------------------------------------------- */

static const char *scheduling; /* how the kernel runs this process: fifo, nice or normal */

static void print_lag(const char *name, const Lag *lag) {
    printf("\"%s\": {\"samples\": %" PRIu64 ", \"late\": %" PRIu64 ", \"p50\": %.6f, \"p99\": %.6f, \"p999\": %.6f, "
           "\"max\": %.6f}, ",
           name, lag->samples, lag->late, (double)lag_quantile(lag, 0.5) / 1e9, (double)lag_quantile(lag, 0.99) / 1e9,
           (double)lag_quantile(lag, 0.999) / 1e9, (double)lag->max / 1e9);
}

static void print_report(void) {
    struct timespec cpu;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    printf("{\"scheduling\": \"%s\", \"phase\": %d, \"cpu_seconds\": %.6f, ", scheduling, current_phase,
           (double)cpu.tv_sec + (double)cpu.tv_nsec / 1e9);
    print_lag("packet_lag", &packet_lag);
    print_lag("heartbeat_lag", &heartbeat_lag);
    printf("\"hosts\": [");
    for (int i = 0; i < num_hosts; i++) {
        const Counters *c = &counters[i];
        printf("%s{\"sent_packets\": %" PRIu64 ", \"sent_bytes\": %" PRIu64 ", \"received_packets\": %" PRIu64
               ", \"received_bytes\": %" PRIu64 ", \"dropped_egress\": %" PRIu64 ", \"dropped_link\": %" PRIu64
               ", \"dropped_ingress\": %" PRIu64 ", \"unroutable\": %" PRIu64 "}",
               i ? ", " : "", c->sent_packets, c->sent_bytes, c->received_packets, c->received_bytes,
               c->dropped_egress, c->dropped_link, c->dropped_ingress, c->unroutable);
    }
    printf("]}\n");
}

static void begin(int64_t now) {
    memset(&packet_lag, 0, sizeof packet_lag);
    memset(&heartbeat_lag, 0, sizeof heartbeat_lag);
    memset(counters, 0, sizeof counters);
    phase_end = now + phases[0].duration;
    printf("begun %" PRId64 "\n", now);
}

static void add_phase(int64_t duration) {
    phases = realloc(phases, sizeof(Phase) * (size_t)(num_phases + 1));
    if (!phases) fail("out of memory");
    phases[num_phases].duration = duration;
    phases[num_phases].host_ns_per_byte = allocate((size_t)num_hosts, sizeof(double));
    phases[num_phases].links = allocate((size_t)(num_hosts * num_hosts), sizeof(Link));
    num_phases++;
}

/* Returns false on `quit`. */
static bool obey(const char *line, int64_t now) {
    int64_t duration, latency;
    int i, j;
    double rate;
    char ending[8];
    bool in_phase = num_phases > 0;
    if (sscanf(line, "phase %" SCNd64, &duration) == 1 && duration > 0) {
        add_phase(duration);
    } else if (in_phase && sscanf(line, "host %d %lf", &i, &rate) == 2 && i >= 0 && i < num_hosts) {
        phases[num_phases - 1].host_ns_per_byte[i] = ns_per_byte(rate);
    } else if (in_phase && sscanf(line, "link %d %d %" SCNd64 " %lf", &i, &j, &latency, &rate) == 4 && i >= 0 &&
               i < num_hosts && j >= 0 && j < num_hosts) {
        phases[num_phases - 1].links[i * num_hosts + j] = (Link){latency, ns_per_byte(rate)};
    } else if (in_phase && sscanf(line, "ready %7s", ending) == 1) {
        repeats = strcmp(ending, "repeat") == 0;
        put_in_force(0, now);
        printf("ready %s\n", scheduling);
    } else if (in_phase && strcmp(line, "begin") == 0) {
        begin(now);
    } else if (strcmp(line, "report") == 0) {
        print_report();
    } else if (strcmp(line, "quit") == 0) {
        return false;
    } else {
        fail("not a command: %s", line);
    }
    fflush(stdout);
    return true;
}

typedef enum { LISTENING, QUIT, ABANDONED } Control;

static Control read_commands(int64_t now) {
    static char buffer[65536];
    static size_t filled;
    ssize_t length = read(STDIN_FILENO, buffer + filled, sizeof buffer - filled);
    if (length < 0) return errno == EAGAIN || errno == EINTR ? LISTENING : ABANDONED;
    if (length == 0) return ABANDONED;
    filled += (size_t)length;
    char *start = buffer, *end;
    while ((end = memchr(start, '\n', filled - (size_t)(start - buffer)))) {
        *end = 0;
        if (!obey(start, now)) return QUIT;
        start = end + 1;
    }
    filled -= (size_t)(start - buffer);
    memmove(buffer, start, filled);
    if (filled == sizeof buffer) fail("a command is too long");
    return LISTENING;
}

/* ---- starting and ending ----------------------------------------------------------------------------------------- */

static int open_tun(const char *namespace, const char *device) {
    int target = open(namespace, O_RDONLY | O_CLOEXEC);
    if (target < 0 || setns(target, CLONE_NEWNET) < 0) fail("entering %s: %s", namespace, strerror(errno));
    close(target);
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) fail("opening /dev/net/tun: %s", strerror(errno));
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", device);
    if (ioctl(fd, TUNSETIFF, &request) < 0) fail("making the TUN device %s: %s", device, strerror(errno));
    /* Checksums and segmentation are never done: the far end trusts the header that says so. */
    if (ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) < 0) fail("TUN offloads: %s", strerror(errno));
    return fd;
}

/* Run ahead of everything that trains: the relay uses little, but uses it at once. */
static const char *raise_priority(void) {
    prctl(PR_SET_TIMERSLACK, 1UL);
    struct sched_param parameters = {.sched_priority = 1};
    if (sched_setscheduler(0, SCHED_FIFO, &parameters) == 0) return "fifo";
    return setpriority(PRIO_PROCESS, 0, -20) == 0 ? "nice" : "normal";
}

static void become(char **command, int owner) {
    struct sched_param parameters = {0};
    sched_setscheduler(0, SCHED_OTHER, &parameters);
    struct pollfd exited = {.fd = owner, .events = POLLIN};
    poll(&exited, 1, OWNER_EXIT_TIMEOUT_MS); /* its pipes close a little before it is gone */
    execv(command[0], command);
    fail("running %s: %s", command[0], strerror(errno));
}

/* The loop: returns when told to quit (true) or when the owner is gone (false). */
static bool run(int owner) {
    struct pollfd polled[MAX_HOSTS + 2];
    for (int i = 0; i < num_hosts; i++) polled[i] = (struct pollfd){.fd = tun[i], .events = POLLIN};
    struct pollfd *control = &polled[num_hosts], *exited = &polled[num_hosts + 1];
    *control = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
    *exited = (struct pollfd){.fd = owner, .events = POLLIN};

    int64_t heartbeat = now_ns() + HEARTBEAT_NS;
    for (;;) {
        int64_t now = now_ns();
        for (; heartbeat <= now; heartbeat += HEARTBEAT_NS) record_lag(&heartbeat_lag, now - heartbeat);
        advance_schedule(now);
        int64_t next = min64(min64(move_all(now), phase_end), heartbeat);

        int64_t wait = max64(0, next - now_ns());
        struct timespec timeout = {wait / SECOND, wait % SECOND};
        if (ppoll(polled, (nfds_t)num_hosts + 2, &timeout, NULL) <= 0) continue;

        for (int i = 0; i < num_hosts; i++) {
            if (polled[i].revents & POLLERR) fail("the TUN device of host %d is gone", i);
            if (!(polled[i].revents & POLLIN)) continue;
            for (int left = READS_PER_TURN; left && accept_packet(i); left--) continue;
        }
        if (exited->revents) return false;
        if (control->revents) {
            Control heard = read_commands(now_ns());
            if (heard != LISTENING) return heard == QUIT;
        }
    }
}

int main(int argc, char **argv) {
    const int fixed = 5;
    if (argc <= fixed) fail("usage: relay OWNER_PID DEVICE FIRST_ADDRESS NUM_HOSTS NAMESPACE... SWEEP_COMMAND...");
    num_hosts = atoi(argv[4]);
    if (num_hosts < 1 || num_hosts > MAX_HOSTS) fail("1 to %d hosts", MAX_HOSTS);
    if (argc <= fixed + num_hosts) fail("a namespace for each host, then the sweep command");
    struct in_addr address;
    if (!inet_aton(argv[3], &address)) fail("not an address: %s", argv[3]);
    first_address = ntohl(address.s_addr);

    /* Ctrl-C and broken pipes are the owner's to handle; the relay goes when the owner does. */
    signal(SIGINT, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    int owner = (int)syscall(SYS_pidfd_open, atoi(argv[1]), 0);
    if (owner < 0) fail("watching the owner, process %s: %s", argv[1], strerror(errno));
    fcntl(owner, F_SETFD, FD_CLOEXEC);
    fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);

    num_gates = (2 + num_hosts) * num_hosts;
    num_stations = num_gates + num_hosts * num_hosts;
    gates = allocate((size_t)num_gates, sizeof(Gate));
    wires = allocate((size_t)(num_hosts * num_hosts), sizeof(Wire));
    next_time = allocate((size_t)num_stations, sizeof(int64_t));
    for (int i = 0; i < num_stations; i++) next_time[i] = NEVER;
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < num_hosts; i++) tun[i] = open_tun(argv[fixed + i], argv[2]);
    if (home < 0 || setns(home, CLONE_NEWNET) < 0) fail("returning to the first namespace: %s", strerror(errno));
    scheduling = raise_priority();
    printf("open\n");
    fflush(stdout);

    if (!run(owner)) become(argv + fixed + num_hosts, owner);
    return 0;
}
