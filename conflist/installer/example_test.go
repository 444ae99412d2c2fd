// SPDX-License-Identifier: Apache-2.0

package installer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/meshcni/meshcni/conflist"
	"github.com/meshcni/meshcni/conflist/installer"
	"github.com/meshcni/meshcni/conflist/reconciler"
)

func Example() {
	root, err := os.MkdirTemp("", "node")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(root)
	in := func(name string) string { return filepath.Join(root, name) }
	const network = `{"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "ptp"}]}`
	err = errors.Join(
		os.Mkdir(in("source"), 0o755), os.Mkdir(in("bin"), 0o755), os.Mkdir(in("net.d"), 0o755), os.Mkdir(in("cache"), 0o755),
		os.Mkdir(in("account"), 0o755),
		os.WriteFile(in("source/linkmesh-cni"), []byte("a program"), 0o755),
		os.WriteFile(in("account/token"), []byte("secret"), 0o600),
		os.WriteFile(in("net.d/10-net.conflist"), []byte(network), 0o644),
	)
	if err != nil {
		fmt.Println(err)
		return
	}

	node, err := installer.New(installer.Options{
		Want: reconciler.Want{Plugin: conflist.Plugin{Type: "linkmesh-cni", Body: []byte(`{"type": "linkmesh-cni", "log_level": "info"}`)}},

		SourceDir: in("source"), BinDir: in("bin"), NetDir: in("net.d"), RunDir: in("run"), CacheDir: in("cache"),
		Kubeconfig: &installer.Kubeconfig{Host: "10.96.0.1", Port: "443", Insecure: true, TokenFile: in("account/token")},
		OnEvent:    func(e installer.Event) { fmt.Println(e.Message) }, // its facts have the paths
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	fmt.Println(node.Install(ctx)) // a daemon calls Run
	list, err := os.ReadFile(in("net.d/10-net.conflist"))
	fmt.Println(strings.Contains(string(list), "linkmesh-cni"), err)

	fmt.Println(node.Uninstall(ctx, installer.UninstallOptions{}))
	list, err = os.ReadFile(in("net.d/10-net.conflist"))
	fmt.Println(string(list) == network, err)
	// Output:
	// installed a binary
	// wrote the plugin's kubeconfig
	// the plugin's kubeconfig, without its secrets
	// how the plugin is installed
	// wrote a CNI configuration
	// the plugin is in the CNI configuration
	// <nil>
	// true <nil>
	// wrote a CNI configuration
	// removed the plugin's kubeconfig
	// removed a binary
	// <nil>
	// true <nil>
}
