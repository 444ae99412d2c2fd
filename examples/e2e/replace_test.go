// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/meshcni/meshcni/examples/e2e/chart"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestReplaceForce deletes and recreates the DaemonSet, and then all objects of the installation,
// as kubectl replace --force does. The old daemons end without uninstalling, whatever the API
// server answers. Pods start throughout, and each is captured.
func TestReplaceForce(t *testing.T) {
	suite.Long(t)
	s := suite.BeginWith(t, withoutRepair())
	client := s.Deploy(scenario.Workload{Name: "client"})
	all := render(t, withoutRepair()).Objects
	sets := slices.DeleteFunc(slices.Clone(all), func(o chart.Object) bool { return o.Kind() != "DaemonSet" })
	before := written(t, s)
	s.Changed()
	for _, objects := range [][]chart.Object{sets, all} {
		daemons := s.Daemons()
		s.WhilePodsStartOrWait(client, func() {
			replace(t, s, objects)
			s.AwaitDaemons()
			s.AwaitEndOf(daemons...)
		})
		if diff := cmp.Diff(before, written(t, s)); diff != "" {
			t.Errorf("with %d objects replaced, the CNI configurations were written (-before +after):\n%s", len(objects), diff)
		}
	}
}

// replace deletes existing objects, waits until they are gone, and recreates them.
func replace(t *testing.T, s *scenario.Scenario, objects []chart.Object) {
	t.Helper()
	client, err := dynamic.NewForConfig(s.Cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	of := func(o chart.Object) dynamic.ResourceInterface {
		return client.Resource(resource(o)).Namespace(o.Namespace())
	}
	background := metav1.DeletePropagationBackground
	var found []*unstructured.Unstructured
	for _, o := range objects {
		s.Do("delete "+o.Kind()+" "+o.Name(), func(ctx context.Context) error {
			object, err := of(o).Get(ctx, o.Name(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			found = append(found, object)
			return of(o).Delete(ctx, o.Name(), metav1.DeleteOptions{PropagationPolicy: &background})
		})
	}
	for i, o := range objects {
		s.Await("the end of "+o.Kind()+" "+o.Name(), func(ctx context.Context) (bool, error) {
			now, err := of(o).Get(ctx, o.Name(), metav1.GetOptions{})
			return apierrors.IsNotFound(err) || err == nil && now.GetUID() != found[i].GetUID(), nil
		})
	}
	for i, o := range objects {
		s.Do("create "+o.Kind()+" "+o.Name(), func(ctx context.Context) error {
			found[i].SetUID("")
			found[i].SetResourceVersion("")
			_, err := of(o).Create(ctx, found[i], metav1.CreateOptions{})
			return err
		})
	}
}
