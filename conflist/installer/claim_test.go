// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/conflist"
	"github.com/meshcni/meshcni/conflist/reconciler"
)

func newTestClaims(t *testing.T, onEvent func(Event)) *claims {
	t.Helper()
	return newClaims(Options{
		Want: reconciler.Want{Plugin: conflist.Plugin{Type: "istio-cni"}}, BinDir: t.TempDir(), Owner: "mesh", Version: "v1",
		OnEvent: onEvent, Now: func() time.Time { return time.Unix(1_000_000_000, 5) },
	}.filled())
}

func TestClaimRoundTrip(t *testing.T) {
	t.Parallel()
	c := newTestClaims(t, nil)
	if _, err := c.load(); !isMissing(err) {
		t.Fatalf("load of nothing: %v", err)
	}
	var configs reconciler.Claim
	if err := json.Unmarshal([]byte(`[{"name":"a.conflist","original":"00","lifted":{"name":"a.conf","content":"e/99"}}]`), &configs); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.update(nil, func(claim *claim) { claim.Configs = configs; claim.Binaries = []string{"istio-cni"} }); err != nil {
			t.Fatal(err)
		}
	}
	want := claim{
		Format: 1, Owner: "mesh", Version: "v1", Since: time.Unix(1_000_000_000, 0).UTC(), Binaries: []string{"istio-cni"},
		Configs: configs, Session: session{Number: 1, ID: c.own.ID},
	}
	got, err := c.load()
	if diff := cmp.Diff(want, got, cmp.Exporter(func(reflect.Type) bool { return true })); err != nil || diff != "" {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
	if err := c.update(nil, func(claim *claim) { claim.Configs = reconciler.Claim{} }); err != nil {
		t.Fatal(err)
	}
	if got, err = c.load(); err != nil || !got.Configs.IsZero() || !got.Since.Equal(want.Since) {
		t.Errorf("without configurations: %+v, %v", got, err)
	}
	if err := c.remove(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.load(); !isMissing(err) {
		t.Errorf("after remove: %v", err)
	}
}

// TestDaemonsThatOverlap has another daemon write or remove the claim between read and write.
func TestDaemonsThatOverlap(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		other func(c *claims) error
		want  []string
	}{
		"writes": {func(c *claims) error {
			return c.update(nil, func(claim *claim) { claim.Binaries = []string{"theirs"} })
		}, []string{"theirs", "ours"}},
		"removes": {func(c *claims) error { return c.remove(nil) }, []string{"ours"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newTestClaims(t, nil)
			if err := c.update(nil, func(*claim) {}); err != nil {
				t.Fatal(err)
			}
			calls := 0
			if err := c.update(nil, func(claim *claim) {
				if calls++; calls == 1 {
					other := &claims{options: c.options, own: c.own}
					if err := test.other(other); err != nil {
						t.Error(err)
					}
				}
				claim.Binaries = append(claim.Binaries, "ours")
			}); err != nil {
				t.Fatal(err)
			}
			got, err := c.load()
			if diff := cmp.Diff(test.want, got.Binaries); err != nil || diff != "" || calls != 2 {
				t.Errorf("%v, after %d calls (-want +got):\n%s", err, calls, diff)
			}
		})
	}
}

// TestHostileClaims has records that would lead root out of our directories.
func TestHostileClaims(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ content, want string }{
		"garbage":          {`{`, "unexpected end"},
		"unknown format":   {`{"format": 2}`, "format 2"},
		"binary":           {`{"format": 1, "binaries": ["../../etc/passwd"]}`, "bare file name"},
		"no binary":        {`{"format": 1, "binaries": [""]}`, "bare file name"},
		"parent":           {`{"format": 1, "binaries": [".."]}`, "bare file name"},
		"configuration":    {`{"format": 1, "configs": [{"name": "/etc/passwd"}]}`, "bare file name"},
		"lifted":           {`{"format": 1, "configs": [{"name": "a", "lifted": {"name": "../a"}}]}`, "bare file name"},
		"no configuration": {`{"format": 1, "configs": [{"name": ""}]}`, "bare file name"},
		"too deep":         {`{"format": 1, "configs": [{"name": "n/x.conf"}]}`, "bare file name"},
		"drop-in":          {`{"format": 1, "configs": [{"name": "x.conf", "mode": "dropin"}]}`, "x.conf"},
		"outer drop-in":    {`{"format": 1, "configs": [{"name": "../x.conf", "mode": "dropin"}]}`, "bare file name"},
		"other kubeconfig": {`{"format": 1, "kubeconfig": "/etc/shadow"}`, "not a kubeconfig of ours"},
		"other former":     {`{"format": 1, "former_kubeconfigs": ["/etc/shadow"]}`, "not a kubeconfig of ours"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log strings.Builder
			c := newTestClaims(t, func(e Event) { log.WriteString(e.String()) })
			if err := os.WriteFile(c.path(), []byte(test.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := c.load(); err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), c.path()) {
				t.Errorf("load: %v, want the path and %q", err, test.want)
			}
			if err := c.update(nil, func(*claim) {}); err != nil || !strings.Contains(log.String(), "beginning a new one") {
				t.Errorf("update: %v; log %q", err, &log)
			}
			if _, err := c.load(); err != nil {
				t.Errorf("load of the new one: %v", err)
			}
		})
	}
}

// TestKept counts the calls of OnTake: at first, and whenever a newer daemon has left.
func TestKept(t *testing.T) {
	t.Parallel()
	old := newTestClaims(t, nil)
	told := 0
	old.options.OnTake = func() { told++ }
	want := func(what string, times int) {
		t.Helper()
		if told != times {
			t.Errorf("%s: told %d times, want %d", what, told, times)
		}
	}
	for range 2 {
		if err := old.keep(nil); err != nil {
			t.Fatal(err)
		}
		want("a daemon alone", 1)
	}
	for i, noticed := range []bool{true, false} {
		o := old.options
		o.OnTake = func() {}
		newer := newClaims(o)
		if err := newer.keep(nil); err != nil {
			t.Fatal(err)
		}
		if noticed {
			if err := old.keep(nil); !errors.Is(err, ErrSuperseded) {
				t.Errorf("beside a newer daemon: %v", err)
			}
		}
		want("beside a newer daemon", i+1)
		if err := newer.leave(nil); err != nil {
			t.Fatal(err)
		}
		if err := old.keep(nil); err != nil {
			t.Fatal(err)
		}
		want("after it has left", i+2)
	}
}
