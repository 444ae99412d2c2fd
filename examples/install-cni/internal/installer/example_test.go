// SPDX-License-Identifier: Apache-2.0

package installer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/meshcni/meshcni/examples/install-cni/internal/installer"
	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
)

func Example() {
	root, err := os.MkdirTemp("", "node")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(root)
	in := func(name string) string { return filepath.Join(root, name) }
	s := settings.Settings{
		SourceDir: in("source"), BinDir: in("bin"), NetDir: in("net.d"), RunDir: in("run"), CacheDir: in("cache"),
		ServiceAccountDir: in("account"), APIHost: "10.96.0.1", APIPort: "443", SkipTLSVerify: true, KubeconfigMode: 0o600,
	}
	const network = `{"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "ptp"}]}`
	err = errors.Join(
		os.Mkdir(s.SourceDir, 0o755), os.Mkdir(s.BinDir, 0o755), os.Mkdir(s.NetDir, 0o755), os.Mkdir(s.CacheDir, 0o755),
		os.Mkdir(s.ServiceAccountDir, 0o755),
		os.WriteFile(in("source/istio-cni"), []byte("a program"), 0o755),
		os.WriteFile(in("account/token"), []byte("secret"), 0o600),
		os.WriteFile(in("net.d/10-net.conflist"), []byte(network), 0o644),
	)
	if err != nil {
		fmt.Println(err)
		return
	}

	node := installer.New(s, installer.Options{Version: "v1.0.0", Log: slog.New(slog.DiscardHandler), Now: time.Now})
	ctx := context.Background()
	fmt.Println(node.Binaries().Ensure(ctx))
	fmt.Println(node.Kubeconfig().Ensure(ctx))
	fmt.Println(node.Config().Ensure(ctx))
	fmt.Println(node.Config().Ensure(ctx))
	list, err := os.ReadFile(in("net.d/10-net.conflist"))
	fmt.Println(strings.Contains(string(list), "istio-cni"), err)

	fmt.Println(node.Uninstall(ctx, installer.UninstallOptions{}))
	list, err = os.ReadFile(in("net.d/10-net.conflist"))
	fmt.Println(string(list) == network, err)
	// Output:
	// wrote <nil>
	// wrote <nil>
	// wrote <nil>
	// right <nil>
	// true <nil>
	// <nil>
	// true <nil>
}
