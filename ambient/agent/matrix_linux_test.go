// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/interception/trace"
)

// cell is a connection that each backend and family is tried with.
type cell struct {
	direction, what string
	from, to        string // the names of places; "localhost" is the pod itself
	network         string
	port            uint16
	// relays are how many times the nodes' proxies relay it, and answered whether an application
	// answers: what the mesh is for, besides that trace and kernel agree.
	relays   [2]int
	answered bool
}

// isQuery reports whether the connection is a captured query.
func (c cell) isQuery() bool { return c.port == 53 && c.from == "dns-1" && c.relays != [2]int{} }

// isCounted reports whether any proxy begins as many connections for this one as the stand-in: it
// may keep a tunnel open for later ones, and refuse connections to itself at another place.
func (c cell) isCounted() bool { return c.relays[0]+c.relays[1] < 2 && c.direction != toProxy }

// toProxy is the direction of connections that the proxy refuses.
const toProxy = "to the proxy"

func tcp(direction, what, from, to string, relays ...int) cell {
	return cell{direction, what, from, to, "tcp", 8080, [2]int(relays), true}
}

func refused(what, from, to string, port uint16, relays ...int) cell {
	return cell{toProxy, what, from, to, "tcp", port, [2]int(relays), false}
}

func cells() []cell {
	all := []cell{
		tcp("same node", "captured on both sides, through a tunnel", "client-1", "server-1", 2, 0),
		tcp("same node", "captured at the client", "client-1", "plain-1", 1, 0),
		tcp("same node", "captured at the server", "plain-1", "server-1", 1, 0),
		tcp("same node", "not captured", "plain-1", "other-1", 0, 0),
		tcp("across nodes", "captured on both sides, through a tunnel", "client-1", "server-2", 1, 1),
		tcp("across nodes", "captured at the client", "client-1", "plain-2", 1, 0),
		tcp("across nodes", "captured at the server", "plain-1", "server-2", 0, 1),
		tcp("across nodes", "not captured", "plain-1", "plain-2", 0, 0),
		tcp("own address", "captured", "client-1", "client-1", 0, 0),
		tcp("own address", "not captured", "plain-1", "plain-1", 0, 0),
		tcp("loopback", "captured", "client-1", "localhost", 0, 0),
		tcp("from the host", "captured", "host-1", "server-1", 0, 0), // the kubelet's probe
		tcp("from another host", "captured", "host-2", "server-1", 1, 0),
		tcp("from the host", "not captured", "host-1", "plain-1", 0, 0),
		tcp("same node", "to an ingress", "plain-1", "ingress-1", 0, 0),
		tcp("across nodes", "from an ingress", "ingress-1", "server-2", 1, 1),
		tcp("across nodes", "outbound port excluded", "no-port-out-1", "plain-2", 0, 0),
		tcp("across nodes", "outbound port excluded, captured at the server", "no-port-out-1", "server-2", 0, 1),
		tcp("across nodes", "outbound range excluded", "no-net-out-1", "plain-2", 0, 0),
		tcp("same node", "outbound range of others excluded", "no-net-out-1", "plain-1", 1, 0),
		tcp("across nodes", "inbound port excluded", "plain-1", "no-port-in-2", 0, 0),
		tcp("across nodes", "inbound port excluded, through a tunnel", "client-1", "no-port-in-2", 1, 1),
		{"across nodes", "UDP", "client-1", "server-2", "udp", 8080, [2]int{}, true},
		{"across nodes", "DNS without capture", "client-1", "plain-2", "udp", 53, [2]int{}, true},
		{"across nodes", "DNS over TCP without capture", "client-1", "plain-2", "tcp", 53, [2]int{1, 0}, true},
		{"across nodes", "DNS", "dns-1", "server-2", "udp", 53, [2]int{1, 0}, true},
		{"across nodes", "DNS over TCP", "dns-1", "server-2", "tcp", 53, [2]int{1, 0}, true},
		{"own address", "DNS", "dns-1", "dns-1", "udp", 53, [2]int{}, true},
		{"across nodes", "UDP beside DNS", "dns-1", "server-2", "udp", 8080, [2]int{}, true},
		{"across nodes", "nobody listens", "client-1", "server-2", "tcp", 8081, [2]int{1, 1}, false},
		{"across nodes", "nobody listens, not captured", "plain-1", "plain-2", "tcp", 8081, [2]int{}, false},
	}
	for _, port := range []uint16{15001, 15006, 15008} {
		at := "port " + strconv.Itoa(int(port))
		all = append(all,
			refused(at+", from the pod itself", "client-1", "localhost", port, 0, 0),
			refused(at+", from the pod's own address", "client-1", "client-1", port, 0, 0),
			refused(at+", from outside", "plain-1", "server-2", port, 0, 0),
			refused(at+", from another pod", "client-1", "server-2", port, 0, 0),
		)
	}
	return all
}

// whileProxiesAreAway are the cells after the end of all proxies: what is captured does not go out
// in clear text.
func whileProxiesAreAway() []cell {
	return []cell{
		{"no proxy", "captured at the client", "client-1", "plain-2", "tcp", 8080, [2]int{}, false},
		{"no proxy", "captured at the server", "plain-1", "server-2", "tcp", 8080, [2]int{}, false},
		tcp("no proxy", "not captured", "plain-1", "plain-2", 0, 0),
		tcp("no proxy", "own address", "client-1", "client-1", 0, 0),
	}
}

// matrix is which connections were tried, by backend and family.
type matrix struct {
	mu      sync.Mutex
	columns map[string]bool
	rows    []string
	results map[[2]string]string // by row and column
}

func (m *matrix) set(row, column, result string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.columns[column] = true
	if !slices.Contains(m.rows, row) {
		m.rows = append(m.rows, row)
	}
	m.results[[2]string{row, column}] = result
}

func (m *matrix) String() string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	columns := slices.Sorted(maps.Keys(m.columns))
	_, _ = fmt.Fprintf(w, "\t%s\t\n", strings.Join(columns, "\t"))
	slices.Sort(m.rows)
	for _, row := range m.rows {
		_, _ = fmt.Fprint(w, row, "\t")
		for _, column := range columns {
			_, _ = fmt.Fprint(w, m.results[[2]string{row, column}], "\t")
		}
		_, _ = fmt.Fprintln(w)
	}
	_ = w.Flush() // into a string
	return text.String()
}

// The results of a cell. A proxy that is a command sends queries to resolvers of its own, which the
// nodes do not have.
const (
	asWanted  = "ok"
	otherwise = "not as wanted"
	notTried  = "not tried: captured queries"
)

// count returns how many cells have a result.
func (m *matrix) count(result string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, one := range m.results {
		if one == result {
			n++
		}
	}
	return n
}

func newMatrix() *matrix { return &matrix{columns: map[string]bool{}, results: map[[2]string]string{}} }

// hostDataplanes returns those that hold the rules of pods and of a host.
func hostDataplanes(t *testing.T) map[string]hostDataplane {
	t.Helper()
	native, err := nftables.New(nftables.Options{})
	if err != nil {
		t.Fatal(err)
	}
	backends := map[string]hostDataplane{"nftables": native}
	for _, flavour := range []iptables.Flavour{iptables.Legacy, iptables.NFT} {
		if backends["iptables-"+string(flavour)], err = iptables.New(iptables.Options{Flavour: flavour}); err != nil {
			t.Fatal(err)
		}
	}
	return backends
}

// TestNodes sends connections through two nodes with an agent, a proxy and pods each, on each
// backend, and compares where they end with package trace. It prints which were tried.
func TestNodes(t *testing.T) {
	t.Parallel()
	backends := hostDataplanes(t)
	command := os.Getenv(ambienttest.Variable) //nolint:forbidigo // a run of tests has no caller that could pass it
	tried := newMatrix()
	t.Cleanup(func() { // when all subtests have ended
		t.Logf("%d cells\n%s", len(tried.results), tried)
		const columns, rows = 12, 47
		if got, want := len(tried.results), columns*rows; got != want {
			t.Errorf("%d cells were tried, want %d", got, want)
		}
	})
	for name, backend := range backends {
		for stack, families := range map[string][]interception.Family{
			"v4": {interception.IPv4}, "v6": {interception.IPv6}, "dual": families(),
		} {
			t.Run(name+" "+stack, func(t *testing.T) {
				t.Parallel()
				newMesh(t, backend, families, command).tryAll(tried, name+" "+stack, families)
			})
		}
	}
}

func (m *mesh) tryAll(tried *matrix, column string, families []interception.Family) {
	m.t.Helper()
	try := func(all []cell) {
		world := m.world()
		for _, c := range all {
			for _, family := range families {
				in := column
				if len(families) > 1 {
					in += "/" + family.String()
				}
				tried.set(c.direction+", "+c.what, in, m.try(world, c, family))
			}
		}
	}
	try(cells())
	for _, n := range m.nodes {
		if err := n.proxy.Close(); err != nil {
			m.t.Error(err)
		}
	}
	m.silent = true
	try(whileProxiesAreAway())
}

func (m *mesh) try(world trace.World, c cell, family interception.Family) (result string) {
	m.t.Helper()
	if m.command != "" && c.isQuery() {
		return notTried
	}
	seen := m.travel(world, c.from, c.network, m.address(c, family), m.command == "" || c.isCounted())
	if seen.Relays == c.relays && seen.Visit.Server.IsValid() == c.answered {
		return asWanted
	}
	m.t.Errorf("%s, %s, %s: %s, want that it is relayed %v and answered: %t", c.direction, c.what, family, seen, c.relays, c.answered)
	return otherwise
}

// address returns where a cell's connection goes.
func (m *mesh) address(c cell, family interception.Family) string {
	m.t.Helper()
	if c.to == "localhost" {
		return netip.AddrPortFrom(map[interception.Family]netip.Addr{
			interception.IPv4: netip.MustParseAddr("127.0.0.1"), interception.IPv6: netip.IPv6Loopback(),
		}[family], c.port).String()
	}
	for _, address := range m.places[c.to].Addresses {
		if interception.FamilyOf(address) == family {
			return netip.AddrPortFrom(address, c.port).String()
		}
	}
	m.t.Fatalf("%s has no address of %s", c.to, family)
	return ""
}
