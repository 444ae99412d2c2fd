// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/conflist/reconciler"
)

var documents = flag.Int("documents", 40, "how many random documents TestRandomDocuments takes through each mode")

// TestRandomDocuments installs into random documents, most of them valid, reorders them, and
// uninstalls: either nothing happens, with a reason, or a runtime calls what it called before and
// the plugin. In the end every byte is as before.
func TestRandomDocuments(t *testing.T) {
	t.Parallel()
	installed := 0
	for seed := range *documents {
		name, doc := randomDocument(rand.New(rand.NewPCG(1, uint64(seed)))) //nolint:gosec // reproducible
		for _, mode := range modes() {
			n := newNode(t, mode)
			n.write(name, doc, 0o644)
			before, network := dump(t, n.directory), n.loaded()
			plan, err := n.reconciler().Install(n.context)
			switch {
			case errors.Is(err, reconciler.ErrWaiting) || errors.Is(err, reconciler.ErrRefused):
				n.want("after a refusal", before)
			case err != nil:
				t.Fatalf("seed %d, %s: %v", seed, mode, err)
			default:
				installed++
				n.wantChain(network)
				n.write(plan.File, n.reorder(n.read(filepath.Join(n.directory, plan.File))), n.mode0(plan.File))
				n.install()
				n.wantChain(network)
			}
			n.remove()
			n.want(fmt.Sprintf("seed %d, %s, after the uninstall", seed, mode), before)
			if t.Failed() {
				t.Fatalf("seed %d, %s: %s with\n%s", seed, mode, name, doc)
			}
		}
	}
	if installed < *documents {
		t.Errorf("only %d of %d documents times %d modes could be installed into", installed, *documents, len(modes()))
	}
}

func randomDocument(r *rand.Rand) (name, doc string) {
	d := &writer{Rand: r}
	members := []string{d.member("name", d.choose(`"net"`, `"k8s-pod-network"`, `"a.b_c-d"`, `"../x"`, `"\u006eet"`))}
	if r.IntN(4) > 0 {
		members = append(members, d.member("cniVersion", d.choose(`"0.3.1"`, `"1.0.0"`, `"1.1.0"`, `""`)))
	}
	for range r.IntN(3) {
		members = append(members, d.member("x"+strconv.Itoa(r.IntN(1000)), d.value(3)))
	}
	if r.IntN(3) == 0 {
		members = append(members, d.member("type", `"bridge"`))
		d.shuffle(members)
		return "10-net.conf", d.blank() + "{" + strings.Join(members, ",") + "}" + d.blank()
	}
	if r.IntN(8) == 0 {
		members = append(members, d.member("loadOnlyInlinedPlugins", "true"))
	}
	var plugins []string
	for i := range 1 + r.IntN(4) {
		plugin := []string{d.member("type", fmt.Sprintf(`"plugin-%d"`, i)), d.member("conf", d.value(3))}
		d.shuffle(plugin)
		plugins = append(plugins, d.blank()+"{"+strings.Join(plugin, ",")+"}"+d.blank())
	}
	members = append(members, d.member("plugins", "["+strings.Join(plugins, ",")+"]"))
	d.shuffle(members)
	return "10-net.conflist", d.blank() + "{" + strings.Join(members, ",") + "}" + d.blank()
}

type writer struct{ *rand.Rand }

func (w *writer) choose(of ...string) string { return of[w.IntN(len(of))] }

func (w *writer) shuffle(members []string) {
	w.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
}

func (w *writer) blank() string {
	return w.choose("", "", "", " ", "\n", "\n  ", "\r\n\t", "    ", "\n\n")
}

func (w *writer) member(key, value string) string {
	return w.blank() + strconv.Quote(key) + w.blank() + ":" + w.blank() + value + w.blank()
}

func (w *writer) value(depth int) string {
	switch n := w.IntN(8); {
	case n < 4 || depth == 0:
		return w.choose("true", "null", "0", "-1.5e3", "9007199254740993", `""`, `"<&>"`, `"é\n\u2028"`, "\"\xff\"", `"{[]}"`, `"\\\""`)
	case n < 6:
		var members []string
		for i := range w.IntN(4) {
			members = append(members, w.member("k"+strconv.Itoa(i), w.value(depth-1)))
		}
		return "{" + w.blank() + strings.Join(members, ",") + "}"
	default:
		var elements []string
		for range w.IntN(4) {
			elements = append(elements, w.blank()+w.value(depth-1)+w.blank())
		}
		return "[" + w.blank() + strings.Join(elements, ",") + "]"
	}
}
