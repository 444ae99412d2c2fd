// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/meshcni/meshcni/conflist"
	"github.com/meshcni/meshcni/conflist/reconciler"
)

// The dry run needs no directory: it is a function of a directory's content.
func ExampleDecide() {
	dir := reconciler.Snapshot{
		"10-calico.conflist": {Mode: 0o644, Data: []byte(`{"name":"net","cniVersion":"1.1.0","plugins":[{"type":"calico"}]}`)},
	}
	want := reconciler.Want{
		Plugin: conflist.Plugin{Type: "mesh-cni", Body: []byte(`{"type":"mesh-cni"}`)}, Mode: reconciler.Auto, Runtime: "containerd://2.1.4",
	}
	fmt.Print(reconciler.Decide(dir, reconciler.Claim{}, want, time.Now()))
	// Output:
	// mode     dropin: containerd://2.1.4 reads the directory that is named after the network
	// primary  10-calico.conflist
	// file     net/99-mesh-cni.conf
	// STATUS   yes: the list's cniVersion is 1.1.0; runtimes with CNI 1.1 ask
	// change   fresh net/99-mesh-cni.conf
	// step     record net/99-mesh-cni.conf
	// step     mkdir net
	// step     write net/99-mesh-cni.conf (25 bytes)
	// step     nudge
}

// record is what a mesh already stores about a node; the claim becomes a part of it.
type record struct {
	Version string           `json:"version"`
	Network reconciler.Claim `json:"network,omitzero"`
}

// Load and Update would read and write a file.
func (r *record) Load() (reconciler.Claim, error) { return r.Network, nil }

func (r *record) Update(change func(*reconciler.Claim)) error {
	change(&r.Network)
	return nil
}

// A mesh that keeps a record of its own stores the claim in it.
func ExampleClaims() {
	directory, err := os.MkdirTemp("", "net.d")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(directory)
	if err := os.WriteFile(filepath.Join(directory, "10-net.conf"), []byte(`{"name": "net", "type": "bridge"}`), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	kept := &record{Version: "1.2.3"}
	r, err := reconciler.New(reconciler.Options{
		Directory: directory,
		Want:      reconciler.Want{Plugin: conflist.Plugin{Type: "mesh-cni", Body: []byte(`{"type": "mesh-cni"}`)}, Mode: reconciler.Owned},
		Claims:    kept,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = r.Install(context.Background())
	fmt.Println(kept.Network.Files(), err)
	_, err = r.Remove(context.Background())
	fmt.Println(kept.Network.IsZero(), err)
	// Output:
	// [00-mesh-cni.conflist] <nil>
	// true <nil>
}

func ExampleReconciler_Install() {
	root, err := os.MkdirTemp("", "node")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(root)
	file := filepath.Join(root, "net.d", "10-net.conflist")
	if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
		fmt.Println(err)
		return
	}
	if err := os.WriteFile(file, []byte(`{"name": "net", "plugins": [{"type": "bridge"}]}`), 0o600); err != nil {
		fmt.Println(err)
		return
	}

	r, err := reconciler.New(reconciler.Options{
		Directory: filepath.Dir(file),
		Want:      reconciler.Want{Plugin: conflist.Plugin{Type: "mesh-cni", Body: []byte(`{"type": "mesh-cni"}`)}},
		Claims:    &record{},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	show := func(_ reconciler.Plan, err error) {
		content, readErr := os.ReadFile(file)
		fmt.Println(string(content), err, readErr)
	}
	show(r.Install(context.Background()))
	show(r.Remove(context.Background()))
	// Output:
	// {"name": "net", "plugins": [{"type": "bridge"}, {"type": "mesh-cni"}]} <nil> <nil>
	// {"name": "net", "plugins": [{"type": "bridge"}]} <nil> <nil>
}
