// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage/driver"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/meshcni/meshcni/examples/e2e/internal/product"
)

// The versions of the product of which nodes have images. Both are built from the same sources.
const (
	FirstVersion  = "e2e-1"
	SecondVersion = "e2e-2"
)

// SystemNamespace is the product's namespace.
const SystemNamespace = "istio-system"

// ReleaseName is the name of the Helm release.
const ReleaseName = "meshcni"

// mostHelm limits how long Helm waits for the DaemonSet, and for hooks.
const mostHelm = 3 * time.Minute

// Values are a chart's values, by name.
type Values = map[string]any

// Install installs the product by its chart, or changes the installation, and waits until it is
// ready on all nodes. Without values, it installs the first version, and excludes namespace
// kube-system. All nodes' daemons change at once, which takes half the time; scenarios about
// upgrades set another strategy.
func (s *Suite) Install(ctx context.Context, values Values) error {
	s.installation.forget()
	if err := s.install(ctx, values); err != nil {
		return fmt.Errorf("install the chart: %w", err)
	}
	if err := s.awaitDaemons(ctx); err != nil {
		return err
	}
	s.installation.become(values)
	return nil
}

// install runs Helm for Install, without waiting.
func (s *Suite) install(ctx context.Context, values Values) error {
	configuration, err := s.helm()
	if err != nil {
		return err
	}
	chart, err := loader.Load(s.chart)
	if err != nil {
		return fmt.Errorf("load the chart: %w", err)
	}
	all := Values{
		"image": product.TestReference("install-cni", FirstVersion), "pullPolicy": "Never",
		"podAnnotations": s.installation.annotations(),
		"settings":       Values{"excludeNamespaces": []any{"kube-system"}},
		"updateStrategy": Values{"rollingUpdate": Values{"maxUnavailable": "100%"}},
	}
	maps.Copy(all, values)
	releases, err := action.NewHistory(configuration).Run(ReleaseName)
	// An uninstall or an upgrade has failed.
	if err == nil && releases[len(releases)-1].Info.Status != release.StatusDeployed {
		remove := action.NewUninstall(configuration)
		remove.DisableHooks, remove.Wait, remove.Timeout = true, true, mostHelm
		if _, err = remove.Run(ReleaseName); err == nil {
			err = driver.ErrReleaseNotFound
		}
	}
	if errors.Is(err, driver.ErrReleaseNotFound) {
		install := action.NewInstall(configuration)
		install.ReleaseName, install.Namespace, install.CreateNamespace = ReleaseName, SystemNamespace, true
		install.Timeout = mostHelm
		_, err = install.RunWithContext(ctx, chart, all)
	} else if err == nil {
		upgrade := action.NewUpgrade(configuration)
		upgrade.Namespace, upgrade.Timeout = SystemNamespace, mostHelm
		_, err = upgrade.RunWithContext(ctx, ReleaseName, chart, all)
	}
	return err
}

// awaitDaemons waits until each node has a ready daemon of the newest generation. Helm accepts one
// less.
func (s *Suite) awaitDaemons(ctx context.Context) error {
	var last appsv1.DaemonSetStatus
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, mostHelm, true, func(ctx context.Context) (bool, error) {
		set, err := s.client().AppsV1().DaemonSets(SystemNamespace).Get(ctx, "istio-cni-node", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		last = set.Status
		all := int32(len(s.Cluster.Nodes()))
		return last.ObservedGeneration == set.Generation && last.UpdatedNumberScheduled == all && last.NumberReady == all &&
			last.NumberUnavailable == 0, nil
	})
	if err != nil {
		return fmt.Errorf("wait for a daemon on each node: %w: %+v", err, last)
	}
	return nil
}

// Uninstall removes the product by Helm, and waits until its objects are gone.
func (s *Suite) Uninstall() error {
	s.installation.forget()
	configuration, err := s.helm()
	if err != nil {
		return err
	}
	uninstall := action.NewUninstall(configuration)
	uninstall.Wait, uninstall.Timeout, uninstall.DeletionPropagation = true, mostHelm, "foreground"
	if _, err := uninstall.Run(ReleaseName); err != nil {
		return fmt.Errorf("uninstall the chart: %w", err)
	}
	return nil
}

// helm returns Helm's connection to the cluster.
func (s *Suite) helm() (*action.Configuration, error) {
	file, namespace := s.Cluster.Kubeconfig(), SystemNamespace
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig, flags.Namespace = &file, &namespace
	configuration := new(action.Configuration)
	if err := configuration.Init(flags, SystemNamespace, "secret", func(string, ...any) {}); err != nil {
		return nil, fmt.Errorf("prepare Helm: %w", err)
	}
	return configuration, nil
}

// Change is [Suite.Install] without waiting for the daemons: after some changes they never become
// ready.
func (s *Suite) Change(ctx context.Context, values Values) error {
	s.installation.forget()
	return s.install(ctx, values)
}

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

// ErrCommand is in the error of [Suite.Helm] for an unknown command line.
var ErrCommand = errors.New("no command of Helm that the tests know")

// Helm runs a Helm command line: install RELEASE CHART, or uninstall RELEASE, with those flags of
// both that the documentation uses. The chart is a directory of the repository.
func (s *Suite) Helm(ctx context.Context, words ...string) error {
	configuration, err := s.helm()
	if err != nil {
		return err
	}
	flags := flag.NewFlagSet("helm", flag.ContinueOnError)
	namespace := flags.String("namespace", "", "")
	create := flags.Bool("create-namespace", false, "")
	operands := map[string]int{"install": 2, "uninstall": 1}
	if len(words) == 0 || len(words) < 1+operands[words[0]] || operands[words[0]] == 0 {
		return fmt.Errorf("%w: %q", ErrCommand, words)
	}
	rest := words[1+operands[words[0]]:]
	if err := flags.Parse(rest); err != nil || flags.NArg() > 0 || *namespace != SystemNamespace {
		return fmt.Errorf("%w: %q: %w", ErrCommand, words, err)
	}
	if words[0] == "uninstall" {
		return s.UninstallRelease(words[1])
	}
	chart, err := loader.Load(filepath.Join("../..", words[2]))
	if err != nil {
		return fmt.Errorf("load the chart: %w", err)
	}
	s.installation.forget()
	install := action.NewInstall(configuration)
	install.ReleaseName, install.Namespace, install.CreateNamespace, install.Timeout = words[1], *namespace, *create, mostHelm
	if _, err := install.RunWithContext(ctx, chart, nil); err != nil {
		return fmt.Errorf("%q: %w", words, err)
	}
	return nil
}
