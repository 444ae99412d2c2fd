// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"helm.sh/helm/v3/pkg/action"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
	"github.com/meshcni/meshcni/examples/e2e/internal/product"
)

// InstallDefault installs the first version, with the chart's values.
func (s *Suite) InstallDefault(ctx context.Context) error { return s.Install(ctx, nil) }

// InstallVersion installs a version of the product, and waits until it runs.
func (s *Scenario) InstallVersion(version string) {
	s.t.Helper()
	s.Do("install version "+version, func(ctx context.Context) error {
		return s.Install(ctx, Values{
			"image": product.TestReference("install-cni", version),
			// This is the chart's default.
			"updateStrategy": Values{"rollingUpdate": Values{"maxUnavailable": 1}},
		})
	})
}

// RollBack reverts the release's last change, as helm rollback does, and waits until the earlier
// version runs.
func (s *Scenario) RollBack() {
	s.t.Helper()
	s.installation.forget()
	configuration, err := s.helm()
	if err != nil {
		s.t.Fatal(err)
	}
	rollback := action.NewRollback(configuration)
	rollback.Timeout = mostHelm
	s.Do("roll back", func(ctx context.Context) error {
		if err := rollback.Run(ReleaseName); err != nil {
			return err
		}
		return s.awaitDaemons(ctx)
	})
}

// RestartDaemons makes the DaemonSet recreate all its pods, as kubectl rollout restart does, and
// waits until they are ready.
func (s *Scenario) RestartDaemons() {
	s.t.Helper()
	s.installation.forget()
	s.Do("restart the daemons", func(ctx context.Context) error {
		patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":%q}}}}}`,
			time.Now().Format(time.RFC3339Nano))
		_, err := s.client().AppsV1().DaemonSets(SystemNamespace).Patch(
			ctx, "istio-cni-node", types.StrategicMergePatchType, patch, metav1.PatchOptions{},
		)
		if err != nil {
			return err
		}
		return s.awaitDaemons(ctx)
	})
}

// AwaitDaemons waits until each node has a ready daemon of the newest generation.
func (s *Scenario) AwaitDaemons() {
	s.t.Helper()
	s.Do("wait for the daemons", s.awaitDaemons)
}

// AwaitEndOf waits until the kubelets have ended and deleted these pods of the product.
func (s *Scenario) AwaitEndOf(daemons ...*corev1.Pod) {
	s.t.Helper()
	for _, daemon := range daemons {
		s.Await("the end of "+daemon.Name, func(ctx context.Context) (bool, error) {
			_, err := s.client().CoreV1().Pods(daemon.Namespace).Get(ctx, daemon.Name, metav1.GetOptions{})
			return apierrors.IsNotFound(err), nil
		})
	}
}

// ExpectPluginVersion checks the version of the plugin on a node.
func (s *Scenario) ExpectPluginVersion(node *cluster.Node, version string) {
	s.t.Helper()
	program, err := os.ReadFile(node.Path("/opt/cni/bin/istio-cni"))
	if err != nil {
		s.t.Error(err)
	}
	if !strings.Contains(string(program), version) {
		s.t.Errorf("the plugin on %s isn't of version %s", node.Name, version)
	}
}
