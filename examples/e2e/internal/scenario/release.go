// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"maps"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"

	"github.com/meshcni/meshcni/examples/e2e/internal/product"
)

// InstallRelease installs another release of the chart, beside the suite's, in the product's second
// version.
func (s *Suite) InstallRelease(ctx context.Context, name string, values Values) error {
	configuration, err := s.helm()
	if err != nil {
		return err
	}
	chart, err := loader.Load(s.chart)
	if err != nil {
		return fmt.Errorf("load the chart: %w", err)
	}
	all := Values{"image": product.TestReference("install-cni", SecondVersion), "pullPolicy": "Never"}
	maps.Copy(all, values)
	install := action.NewInstall(configuration)
	install.ReleaseName, install.Namespace, install.Wait, install.Timeout = name, SystemNamespace, true, mostHelm
	if _, err := install.RunWithContext(ctx, chart, all); err != nil {
		return fmt.Errorf("install release %s: %w", name, err)
	}
	return nil
}

// UninstallRelease removes a release as helm uninstall does by default.
func (s *Suite) UninstallRelease(name string) error { return s.uninstallRelease(name, true) }

// UninstallReleaseWithoutHooks is [Suite.UninstallRelease] with --no-hooks.
func (s *Suite) UninstallReleaseWithoutHooks(name string) error {
	return s.uninstallRelease(name, false)
}

func (s *Suite) uninstallRelease(name string, hooks bool) error {
	if name == ReleaseName {
		s.installation.forget()
	}
	configuration, err := s.helm()
	if err != nil {
		return err
	}
	uninstall := action.NewUninstall(configuration)
	uninstall.Timeout, uninstall.DisableHooks = mostHelm, !hooks
	if _, err := uninstall.Run(name); err != nil {
		return fmt.Errorf("uninstall release %s: %w", name, err)
	}
	return nil
}
