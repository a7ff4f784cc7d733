import asyncio, sys, time, uvloop, resource
sys.path[:0]=['/work/main','/work/main/proto']
from array import array
from smg.workers.options import WorkerOptions
from smg.workers.sglang_grpc import SglangWorker
from smg_proto.engine.v1 import work_pb2
PORT,N,T,P=int(sys.argv[1]),int(sys.argv[2]),int(sys.argv[3]),float(sys.argv[4])
IDS=array('I',range(220)).tobytes()
class L:
    n=0; steps=0
    def __init__(s,f): s.f=f
    def on_started(s,x): pass
    def on_step(s,ids,lp,fin):
        L.n+=len(ids); L.steps+=1
        if fin is not None: s.f.set_result(None)
    def on_failed(s,e): s.f.set_exception(e)
async def main():
    loop=asyncio.get_running_loop()
    w=SglangWorker('w','grpc://127.0.0.1:%d'%PORT,WorkerOptions(read_pause_s=P)); t=asyncio.create_task(w.run())
    while not w.is_ready: await asyncio.sleep(.01)
    async def one():
        f=loop.create_future(); r=work_pb2.Generate(prompt_ids=IDS,stream=True); r.sampling.max_new_tokens=T
        w.generate(r,L(f)); await f
    await asyncio.gather(*[one() for i in range(4)]); L.n=L.steps=0
    a=resource.getrusage(resource.RUSAGE_SELF); t0=time.time()
    await asyncio.gather(*[one() for i in range(N)])
    b=resource.getrusage(resource.RUSAGE_SELF)
    u,s=b.ru_utime-a.ru_utime,b.ru_stime-a.ru_stime
    print('worker N',N,'pause',P,'tokens',L.n,'steps',L.steps,'wall %.2f'%(time.time()-t0),'user %.1f sys %.1f total %.1f us/token'%(u/L.n*1e6,s/L.n*1e6,(u+s)/L.n*1e6))
    t.cancel(); await asyncio.wait([t])
uvloop.run(main())
