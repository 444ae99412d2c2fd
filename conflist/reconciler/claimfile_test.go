// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/meshcni/meshcni/conflist/reconciler"
)

func TestClaimFileRefuses(t *testing.T) {
	t.Parallel()
	for content, says := range map[string]string{
		"":             "remove it",
		`{"format":2}`: "format 2, this version knows 1",
		`{"format":1,"places":[{"name":"../etc/passwd"}]}`:                                    "not a bare file name",
		`{"format":1,"places":[{"name":"/etc/passwd"}]}`:                                      "not a bare file name",
		`{"format":1,"places":[{"name":""}]}`:                                                 "not a bare file name",
		`{"format":1,"places":[{"name":"n/x.conf"}]}`:                                         "not a bare file name",
		`{"format":1,"places":[{"name":"x.conf","mode":"dropin"}]}`:                           "not a bare file name",
		`{"format":1,"places":[{"name":"../x.conf","mode":"dropin"}]}`:                        "not a bare file name",
		`{"format":1,"places":[{"name":"a.conflist","lifted":{"name":"../a","content":""}}]}`: "not a bare file name",
	} {
		f := reconciler.ClaimFile{Path: filepath.Join(t.TempDir(), "claim")}
		if err := os.WriteFile(f.Path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Load(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", content, err, says)
		}
		if err := f.Update(func(c *reconciler.Claim) { *c = reconciler.Claim{} }); err == nil {
			t.Errorf("%s was overwritten", content)
		}
	}
}

// TestClaimFileHasManyWriters checks that no writer loses what another one recorded.
func TestClaimFileHasManyWriters(t *testing.T) {
	t.Parallel()
	f := reconciler.ClaimFile{Path: filepath.Join(t.TempDir(), "claim")}.Observed(unsynced{})
	const first = `[{"name":"first.conflist","lifted":{"name":"first.conf","content":"/w=="}}]`
	var claim reconciler.Claim
	if err := json.Unmarshal([]byte(first), &claim); err != nil {
		t.Fatal(err)
	}
	if err := f.Update(func(c *reconciler.Claim) { *c = claim }); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for i := range 2 {
		group.Go(func() {
			if err := f.Update(func(c *reconciler.Claim) {
				*c = c.Recorded(string(rune('a'+i))+".conflist", reconciler.Splice)
			}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	claim, err := f.Load()
	if text, _ := json.Marshal(claim); err != nil || len(claim.Files()) < 2 || !strings.HasPrefix(string(text), strings.TrimSuffix(first, "]")+",") {
		t.Errorf("claim %s, %v", text, err)
	}
	if info, err := os.Lstat(f.Path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := f.Update(func(c *reconciler.Claim) { *c = reconciler.Claim{} }); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(f.Path); !os.IsNotExist(err) {
		t.Errorf("a claim of nothing has a file: %v", err)
	}
}
