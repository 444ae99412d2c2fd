// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestNamespaceDeleted deletes the installation's namespace, and with it the DaemonSet, its role
// and its service account, in any order. The daemons restore the nodes' state from before the
// installation, and pods of the mesh start.
func TestNamespaceDeleted(t *testing.T) {
	suite.Long(t)
	s := suite.Begin(t)
	client := s.Deploy(scenario.Workload{Name: "client"})
	before := s.Deploy(scenario.Workload{Name: "before", Injected: true})
	daemons := s.Daemons()
	s.Changed()
	namespaces := s.Cluster.Client.CoreV1().Namespaces()
	s.Do("delete the namespace", func(ctx context.Context) error {
		return namespaces.Delete(ctx, scenario.SystemNamespace, metav1.DeleteOptions{})
	})
	s.AwaitEndOf(daemons...)
	expectGone(t, s, client, before)
	s.Await("the end of the namespace", func(ctx context.Context) (bool, error) {
		_, err := namespaces.Get(ctx, scenario.SystemNamespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}
