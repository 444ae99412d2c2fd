// SPDX-License-Identifier: Apache-2.0

package settings_test

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
)

func ExampleLoad() {
	environ := []string{"EXCLUDE_NAMESPACES=kube-system, istio-system", "CNI_CONF_NAME=10-a.conflist", "KUBE_CONFIG_MODE=0640"}
	command := &cobra.Command{RunE: func(command *cobra.Command, _ []string) error {
		loaded, err := settings.Load(command, environ)
		fmt.Println(loaded.Settings.ExcludeNamespaces, loaded.Settings.ConfName, loaded.Values[0].Source)
		fmt.Println(loaded.Unknown)
		return err
	}}
	settings.AddFlags(command)
	command.SetArgs([]string{"--cni-conf-name=20-b.conflist"})
	if err := command.Execute(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// [kube-system istio-system] 20-b.conflist flag --cni-conf-name
	// [KUBE_CONFIG_MODE (did you mean KUBECONFIG_MODE?)]
}

func ExampleSetting() {
	for _, s := range settings.All()[:2] {
		fmt.Printf("--%s or %s, a %s, %q unless given\n", s.Name, s.Env(), s.Kind(), s.Default)
	}
	// Output:
	// --cni-conf-name or CNI_CONF_NAME, a name, "" unless given
	// --mounted-cni-net-dir or MOUNTED_CNI_NET_DIR, a path, "/host/etc/cni/net.d" unless given
}
