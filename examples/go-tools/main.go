// Offers tools to agents: go run . [address]
//
// Register it with PutToolServer (`{"name": "go", "grpc": {"target": "127.0.0.1:50061", "plaintext": true}}`), then call SyncToolServer.
package main

import (
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	bridle "bridle.dev/examples/go-tools/gen/bridle/v1"
)

func main() {
	address := "127.0.0.1:50061"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	server, checks := grpc.NewServer(), health.NewServer()
	bridle.RegisterToolExecutorServer(server, &executor{})
	healthpb.RegisterHealthServer(server, checks)
	go stopAtSignal(server, checks)
	log.Printf("serving tools on %s", listener.Addr())
	if err := server.Serve(listener); err != nil {
		log.Fatal(err)
	}
}

// stopAtSignal says that it is leaving, so that no new calls come, and lets those that are open end.
func stopAtSignal(server *grpc.Server, checks *health.Server) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, os.Interrupt, syscall.SIGTERM)
	<-asked
	checks.Shutdown()
	server.GracefulStop()
}
