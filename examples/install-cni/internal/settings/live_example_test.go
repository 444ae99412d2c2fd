// SPDX-License-Identifier: Apache-2.0

package settings_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
)

func ExampleLive() {
	directory, err := os.MkdirTemp("", "settings")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(directory)
	command := &cobra.Command{Run: func(command *cobra.Command, _ []string) {
		l, err := settings.Load(command, []string{"SETTINGS_DIR=" + directory, "CNI_AGENT_RUN_DIR=" + directory + "-none"})
		if err != nil {
			panic(err)
		}
		part := settings.NewLive(l, slog.New(slog.DiscardHandler), nil, func(s settings.Settings) { fmt.Println("now", s.ExcludeNamespaces) })
		if err := os.WriteFile(filepath.Join(directory, "exclude-namespaces"), []byte("batch\n"), 0o600); err != nil {
			panic(err)
		}
		fmt.Println(part.Ensure(context.Background()))
	}}
	settings.AddFlags(command)
	command.SetArgs([]string{})
	if err := command.Execute(); err != nil {
		panic(err)
	}
	// Output:
	// now [batch]
	// wrote <nil>
}
